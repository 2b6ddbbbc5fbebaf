//! The header in front of each request.
//!
//! Version 1 has the key, the version, the correlation id and the client id; version 2 has tagged
//! fields besides (KIP-482). Which one it is follows from the API and its version; the client id is
//! never compact. Version 0, without a client id, belonged to `ControlledShutdown` alone and went
//! with it in Kafka 4.0.

use bytes::{Buf, Bytes};
use kafka_protocol::messages::ApiKey;
use kafka_protocol::protocol::StrBytes;

use super::reader::{Reader, What};

/// A request's header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    /// The API. That it is known does not say that the broker serves it.
    pub api_key: ApiKey,
    /// The version of the API. Whether it exists is for the one who reads the body.
    pub api_version: i16,
    /// What the response carries back.
    pub correlation_id: i32,
    /// What the client calls itself. Bytes that are no UTF-8 become U+FFFD, as in Kafka.
    pub client_id: Option<StrBytes>,
}

/// Why there is no header. The connection is of no more use: where the next field or the body
/// begins is unknown.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HeaderError {
    /// The frame ends before the API's key and version do.
    #[error("a request of {length} bytes is too short for a header")]
    Short {
        /// The frame's length, in bytes.
        length: usize,
    },
    /// No API has that key. The correlation id stands where it always does.
    #[error("unknown API key {api_key} (v{api_version})")]
    UnknownApi {
        /// The key.
        api_key: i16,
        /// The version asked for.
        api_version: i16,
        /// The correlation id, if the frame is long enough.
        correlation_id: Option<i32>,
    },
    /// The rest of the header is broken.
    #[error("{api_key:?} v{api_version}: the header's {field} at byte {position} {what}")]
    Malformed {
        /// The API.
        api_key: ApiKey,
        /// The version asked for.
        api_version: i16,
        /// The correlation id, if it could be read.
        correlation_id: Option<i32>,
        /// The field that is broken.
        field: &'static str,
        /// Where it begins in the frame, in bytes.
        position: usize,
        /// What is wrong.
        what: What,
    },
}

impl HeaderError {
    /// The correlation id of the request, as far as it is known.
    pub const fn correlation_id(&self) -> Option<i32> {
        match self {
            Self::Short { .. } => None,
            Self::UnknownApi { correlation_id, .. } | Self::Malformed { correlation_id, .. } => {
                *correlation_id
            }
        }
    }
}

/// The header of `frame`, which is left at the body. On an error the frame is as it was.
pub fn read_header(frame: &mut Bytes) -> Result<Header, HeaderError> {
    let mut reader = Reader::new(frame);
    let short = |_| HeaderError::Short { length: frame.len() };
    let key = reader.int16().map_err(short)?;
    let api_version = reader.int16().map_err(short)?;
    let correlation = reader.int32();
    let Ok(api_key) = ApiKey::try_from(key) else {
        let correlation_id = correlation.ok();
        return Err(HeaderError::UnknownApi { api_key: key, api_version, correlation_id });
    };
    let malformed = |field, position, what| {
        let correlation_id = correlation.ok();
        HeaderError::Malformed { api_key, api_version, correlation_id, field, position, what }
    };
    let correlation_id = correlation.map_err(|what| malformed("correlation id", 4, what))?;
    let position = reader.position();
    let client_id =
        client_id(&mut reader).map_err(|what| malformed("client id", position, what))?;
    let client_id = client_id.map(|range| text(&frame.slice(range)));
    if api_key.request_header_version(api_version) >= 2 {
        let position = reader.position();
        skip_tags(&mut reader).map_err(|what| malformed("tagged fields", position, what))?;
    }
    let used = reader.position();
    frame.advance(used);
    Ok(Header { api_key, api_version, correlation_id, client_id })
}

/// Where the client id stands.
fn client_id(reader: &mut Reader<'_>) -> Result<Option<std::ops::Range<usize>>, What> {
    let Some(length) = reader.string_length(false)? else { return Ok(None) };
    let start = reader.position();
    reader.take(length)?;
    Ok(Some(start..reader.position()))
}

/// No tag of the header has a meaning yet. Each takes two bytes at least, so a count that is too
/// high ends with the frame.
fn skip_tags(reader: &mut Reader<'_>) -> Result<(), What> {
    for _ in 0..reader.count()? {
        let _tag = reader.varint()?;
        let length = reader.count()?;
        reader.take(length)?;
    }
    Ok(())
}

/// A copy: the client id outlives the frame, and should not keep all of it.
fn text(bytes: &[u8]) -> StrBytes {
    StrBytes::from_string(String::from_utf8_lossy(bytes).into_owned())
}

#[cfg(test)]
mod tests {
    use bytes::{BufMut, BytesMut};
    use kafka_protocol::messages::RequestHeader;
    use kafka_protocol::protocol::Encodable;
    use proptest::prelude::*;

    use super::*;

    fn frame(key: ApiKey, version: i16, client_id: Option<&str>, tags: &[i32]) -> Bytes {
        let mut header = RequestHeader::default()
            .with_request_api_key(key as i16)
            .with_request_api_version(version)
            .with_correlation_id(77)
            .with_client_id(client_id.map(|id| StrBytes::from_string(id.to_owned())));
        for tag in tags {
            header = header.with_unknown_tagged_field(*tag, Bytes::from_static(b"tag"));
        }
        let mut frame = BytesMut::new();
        header.encode(&mut frame, key.request_header_version(version)).unwrap();
        frame.put_slice(b"body");
        frame.freeze()
    }

    #[test]
    fn the_header_version_follows_from_the_api_and_its_version() {
        for (key, version, tags) in [
            (ApiKey::Produce, 8, &[][..]),
            (ApiKey::Produce, 9, &[0, 7][..]),
            (ApiKey::ApiVersions, 2, &[][..]),
            (ApiKey::ApiVersions, 3, &[3][..]),
            (ApiKey::SaslHandshake, 1, &[][..]),
            (ApiKey::OffsetDelete, 0, &[][..]),
            (ApiKey::DescribeCluster, 0, &[1][..]),
        ] {
            for client_id in [None, Some(""), Some("rdkafka")] {
                let mut bytes = frame(key, version, client_id, tags);
                let header = read_header(&mut bytes).unwrap();
                assert_eq!((header.api_key, header.api_version), (key, version));
                assert_eq!(header.correlation_id, 77);
                assert_eq!(header.client_id.as_deref(), client_id);
                assert_eq!(bytes, "body");
            }
        }
    }

    #[test]
    fn a_version_yet_to_come_has_a_header_all_the_same() {
        let mut bytes = frame(ApiKey::ApiVersions, 99, Some("new"), &[]);
        let header = read_header(&mut bytes).unwrap();
        assert_eq!((header.api_version, header.correlation_id), (99, 77));
        assert_eq!(bytes, "body");
        let mut below = frame(ApiKey::ApiVersions, -1, Some("odd"), &[]);
        assert_eq!(read_header(&mut below).unwrap().api_version, -1);
    }

    #[test]
    fn an_unknown_key_still_has_its_correlation_id() {
        let mut bytes = Bytes::from_static(&[0x03, 0xe7, 0, 1, 0, 0, 0, 9, 0xff, 0xff]);
        let before = bytes.clone();
        let error = read_header(&mut bytes).unwrap_err();
        assert_eq!(
            error,
            HeaderError::UnknownApi { api_key: 999, api_version: 1, correlation_id: Some(9) }
        );
        assert_eq!(bytes, before);
        let mut cut = Bytes::from_static(&[0x03, 0xe7, 0, 1, 0, 0]);
        assert_eq!(read_header(&mut cut).unwrap_err().correlation_id(), None);
    }

    #[test]
    fn a_header_cut_anywhere_is_an_error_that_leaves_the_frame() {
        let whole = frame(ApiKey::Fetch, 12, Some("follower"), &[4]);
        let header_bytes = whole.len() - "body".len();
        for length in 0..header_bytes {
            let mut cut = whole.slice(..length);
            let error = read_header(&mut cut).unwrap_err();
            assert_eq!(error.correlation_id(), (length >= 8).then_some(77), "{length}: {error}");
            assert_eq!(cut.len(), length);
        }
    }

    #[test]
    fn hostile_lengths_are_errors_that_say_where() {
        let mut negative = Bytes::from_static(&[0, 0, 0, 8, 0, 0, 0, 1, 0xff, 0xfe]);
        assert_eq!(
            read_header(&mut negative).unwrap_err().to_string(),
            "Produce v8: the header's client id at byte 8 has the negative length -2"
        );
        let mut tags =
            Bytes::from_static(&[0, 0, 0, 9, 0, 0, 0, 1, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x0f]);
        assert_eq!(
            read_header(&mut tags).unwrap_err().to_string(),
            "Produce v9: the header's tagged fields at byte 10 needs 1 bytes, 0 are left"
        );
    }

    #[test]
    fn a_client_id_that_is_no_text_is_replaced_not_refused() {
        let mut bytes = Bytes::from_static(&[0, 0, 0, 8, 0, 0, 0, 1, 0, 2, b'a', 0xff]);
        let header = read_header(&mut bytes).unwrap();
        assert_eq!(header.client_id.as_deref(), Some("a\u{fffd}"));
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_header_or_an_error(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
            let mut frame = Bytes::from(bytes);
            let before = frame.clone();
            if read_header(&mut frame).is_ok() {
                prop_assert!(before.ends_with(&frame));
            } else {
                prop_assert_eq!(frame, before);
            }
        }
    }
}
