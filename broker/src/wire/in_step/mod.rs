//! Keeps the table and the library in step: what each says of a frame, side by side.
//!
//! | subject | item |
//! |---|---|
//! | the library's side of an API, without its types | `library::Library` |
//! | frames that follow the table, and ones that lie | `writer::Writer` |
//! | what decoded elements take in memory | `memory` |

mod library;
mod memory;
mod writer;

use bytes::Bytes;
use kafka_protocol::messages::ApiKey;
use kafka_protocol::protocol::VersionRange;
use proptest::prelude::*;

use self::library::library;
use self::writer::{Lie, Writer};
use super::field::Request;
use super::shape::{ShapeError, check, measure};
use super::shapes::REQUESTS;

/// Every request in every version.
fn every_version() -> impl Iterator<Item = (&'static Request, i16)> {
    REQUESTS.iter().flat_map(|request| {
        (request.oldest..=request.newest).map(move |version| (*request, version))
    })
}

fn any_version() -> impl Strategy<Value = (&'static Request, i16)> {
    prop::sample::select(every_version().collect::<Vec<_>>())
}

/// What passes [`check`] is decoded by the library, as far as the walk went. Text that is no UTF-8
/// is the one thing that only the library looks at.
fn what_passes_is_decoded(request: &Request, version: i16, body: Vec<u8>) {
    let body = Bytes::from(body);
    let Ok(measured) = measure(request.key, version, &body) else { return };
    match (library(request).decode)(&body, version) {
        Ok(decoded) => assert_eq!(decoded.used_bytes, measured.used_bytes, "{}", request.name),
        Err(error) => assert!(error.contains("utf-8"), "{} v{version}: {error}", request.name),
    }
}

#[test]
fn the_table_is_sorted_and_has_the_librarys_names_and_versions() {
    assert!(REQUESTS.is_sorted_by_key(|request| request.key));
    for request in REQUESTS {
        let library = library(request);
        let key = ApiKey::try_from(request.key).unwrap();
        assert_eq!(format!("{key:?}"), request.name);
        let versions = VersionRange { min: request.oldest, max: request.newest };
        assert_eq!(library.versions, versions, "{}", request.name);
        for version in request.oldest..=request.newest {
            let flexible = (library.header_version)(version) == 2;
            assert_eq!(request.is_flexible(version), flexible, "{} v{version}", request.name);
        }
    }
}

#[test]
fn the_librarys_valid_versions_are_not_always_the_requests() {
    let differs = |request: &&&Request| {
        let said = ApiKey::try_from(request.key).unwrap().valid_versions();
        said != VersionRange { min: request.oldest, max: request.newest }
    };
    let names: Vec<_> = REQUESTS.iter().filter(differs).map(|request| request.name).collect();
    assert_eq!(names, ["OffsetCommit", "OffsetFetch", "InitProducerId"]);
}

#[test]
fn each_default_passes_and_is_used_up() {
    for (request, version) in every_version() {
        let body = (library(request).default)(version).unwrap();
        let measured = measure(request.key, version, &body).unwrap();
        assert_eq!(measured.used_bytes, body.len(), "{} v{version}", request.name);
    }
}

#[test]
fn table_and_library_read_every_version_alike() {
    for (request, version) in every_version() {
        for seed in 0..48 {
            let body = Bytes::from(Writer::write(request, version, seed, None).body);
            let name = format!("{} v{version}, seed {seed}", request.name);
            let measured = measure(request.key, version, &body).unwrap();
            let decoded = (library(request).decode)(&body, version)
                .unwrap_or_else(|error| panic!("{name}: {error}"));
            assert_eq!(
                (measured.used_bytes, decoded.used_bytes),
                (body.len(), body.len()),
                "{name}"
            );
            let again = measure(request.key, version, &decoded.again).unwrap();
            assert_eq!(again.used_bytes, decoded.again.len(), "{name}");
        }
    }
}

#[test]
fn a_body_cut_anywhere_is_an_error() {
    for (request, version) in every_version() {
        let body = Writer::write(request, version, 3, None).body;
        for length in 0..body.len() {
            let cut = &body[..length];
            assert!(
                matches!(check(request.key, version, cut), Err(ShapeError::Malformed(_))),
                "{} v{version} cut at {length} of {}",
                request.name,
                body.len()
            );
        }
    }
}

#[test]
fn a_lie_about_any_length_is_an_error() {
    for (request, version) in every_version() {
        for seed in 0..8 {
            let lengths = Writer::write(request, version, seed, None).lengths;
            for place in 0..lengths {
                for lie in [Lie::Huge, Lie::Nonsense] {
                    let body = Writer::write(request, version, seed, Some((place, lie))).body;
                    assert!(
                        matches!(check(request.key, version, &body), Err(ShapeError::Malformed(_))),
                        "{} v{version}: {lie:?} at length {place} of seed {seed}",
                        request.name
                    );
                }
            }
        }
    }
}

proptest! {
    #[test]
    fn a_mutated_body_that_passes_is_decoded(
        (request, version) in any_version(),
        seed in any::<u64>(),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
        extreme in prop::sample::select(vec![0x00, 0x01, 0x7f, 0x80, 0xff]),
        more in prop::collection::vec(any::<u8>(), 0..8),
    ) {
        let mut body = Writer::write(request, version, seed, None).body;
        body.extend(more);
        for (at, to) in changes {
            if !body.is_empty() {
                let at = at.index(body.len());
                body[at] = if to % 2 == 0 { to } else { extreme };
            }
        }
        what_passes_is_decoded(request, version, body);
    }

    #[test]
    fn any_bytes_that_pass_are_decoded(
        (request, version) in any_version(),
        body in prop::collection::vec(prop_oneof![Just(0u8), Just(1), Just(2), any::<u8>()], 0..96),
    ) {
        what_passes_is_decoded(request, version, body);
    }
}
