//! Logs on real files, against a model: appended, cut, closed, torn, opened again.

use std::fs::{self, OpenOptions};
use std::path::Path;

use proptest::prelude::*;
use replication::types::{LeaderEpoch, Offset};

use super::batch::tests::batch;
use super::{Log, LogSettings, batches};

fn settings() -> LogSettings {
    // Small enough that segments roll and indexes have entries.
    LogSettings { segment_bytes: 400, index_interval_bytes: 100, ..LogSettings::default() }
}

fn open(dir: &Path, clean: bool, recovery_point: i64) -> Log {
    Log::open(dir, settings(), clean, Offset(recovery_point), Offset(0)).unwrap().0
}

/// All offsets and epochs from `from` on, read batch by batch as a follower would.
fn contents(log: &Log, from: Offset) -> Vec<(i64, i32)> {
    let mut found = Vec::new();
    let mut next = from;
    while next < log.end() {
        let bytes = log.read(next, log.end(), 150, true).unwrap();
        assert!(!bytes.is_empty(), "nothing at {next} of {}", log.end());
        for batch in batches(&bytes) {
            let (_, batch) = batch.unwrap();
            for delta in 0..batch.count {
                found.push((batch.base_offset.0 + i64::from(delta), batch.leader_epoch.0));
            }
            next = batch.next_offset();
        }
    }
    found
}

/// The last segment's file.
fn last_file(dir: &Path) -> std::path::PathBuf {
    let mut logs: Vec<_> = fs::read_dir(dir)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|it| it == "log"))
        .collect();
    logs.sort();
    logs.pop().unwrap()
}

#[test]
fn segments_roll_and_every_offset_is_found() {
    let dir = tempfile::tempdir().unwrap();
    let mut log = open(dir.path(), true, 0);
    for number in 0..40 {
        log.append(&batch(number * 3, 1, 3)).unwrap();
    }
    assert!(fs::read_dir(dir.path()).unwrap().count() > 10, "it has not rolled");
    for offset in 0..120 {
        let bytes = log.read(Offset(offset), Offset(120), 1, true).unwrap();
        let first = batches(&bytes).next().unwrap().unwrap().1;
        assert_eq!(first.base_offset, Offset(offset / 3 * 3));
    }
    assert!(log.read(Offset(121), Offset(121), 1, true).is_err());
    // Nothing reaches to the end that a reader may see.
    assert!(log.read(Offset(6), Offset(8), 1_000, true).unwrap().is_empty());
}

#[test]
fn a_time_leads_to_its_first_record() {
    let dir = tempfile::tempdir().unwrap();
    let mut log = open(dir.path(), true, 0);
    // A batch's records carry 1000; its greatest timestamp says 1000 and its base offset.
    for number in 0..20 {
        log.append(&batch(number * 3, 1, 3)).unwrap();
    }
    assert_eq!(log.offset_for_timestamp(1_000).unwrap(), Some((1_000, Offset(0))));
    assert_eq!(log.offset_for_timestamp(9_999).unwrap(), None);
}

#[test]
fn retention_removes_whole_segments_below_the_high_watermark() {
    let dir = tempfile::tempdir().unwrap();
    let mut log = open(dir.path(), true, 0);
    for number in 0..40 {
        log.append(&batch(number * 3, 1, 3)).unwrap();
    }
    log.set_settings(LogSettings { retention_bytes: Some(800), retention_ms: None, ..settings() });
    let freed = log.clean(Offset(60), 0).unwrap();
    assert!(freed > 0 && log.start() <= Offset(60) && log.start() > Offset(40), "{}", log.start());
    log.clean(Offset(120), 0).unwrap();
    assert!(log.size() < 1_600);
    assert_eq!(contents(&log, log.start()).first().unwrap().0, log.start().0);
}

#[test]
fn a_flipped_bit_ends_the_log_there_after_an_unclean_stop() {
    let dir = tempfile::tempdir().unwrap();
    let mut log = open(dir.path(), true, 0);
    for number in 0..4 {
        log.append(&batch(number, 1, 1)).unwrap();
    }
    drop(log);
    let path = last_file(dir.path());
    let mut bytes = fs::read(&path).unwrap();
    let at = bytes.len() - 3;
    bytes[at] ^= 4;
    fs::write(&path, bytes).unwrap();
    let (log, report) = Log::open(dir.path(), settings(), false, Offset(0), Offset(0)).unwrap();
    assert_eq!(log.end(), Offset(3));
    let cut = report.cut.expect("it says so");
    assert!(cut.at == Offset(3) && cut.reason.contains("checksum"), "{cut:?}");
}

/// What is done to a log.
#[derive(Clone, Debug)]
enum Step {
    Append(i32),
    NextEpoch,
    Truncate(u8),
    Reopen,
    /// The last segment loses so many bytes, as after a loss of power.
    Tear(u16),
    /// Its indexes are gone.
    LoseIndexes,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (1..6).prop_map(Step::Append),
        1 => Just(Step::NextEpoch),
        1 => any::<u8>().prop_map(Step::Truncate),
        1 => Just(Step::Reopen),
        1 => (0..300_u16).prop_map(Step::Tear),
        1 => Just(Step::LoseIndexes),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn whatever_happens_what_is_left_is_what_was_written(
        steps in prop::collection::vec(step(), 1..40),
    ) {
        let dir = tempfile::tempdir().unwrap();
        let mut log = open(dir.path(), true, 0);
        // Whole batches: base offset, count, epoch.
        let mut model: Vec<(i64, i32, i32)> = Vec::new();
        let mut epoch = 1;
        for step in steps {
            match step {
                Step::Append(count) => {
                    let base = log.end();
                    log.append(&batch(base.0, epoch, count)).unwrap();
                    model.push((base.0, count, epoch));
                }
                Step::NextEpoch => {
                    epoch += 1;
                    log.begin_epoch(LeaderEpoch(epoch)).unwrap();
                }
                Step::Truncate(share) => {
                    let to = log.end().0 * i64::from(share) / 256;
                    log.truncate_to(Offset(to)).unwrap();
                    model.retain(|(base, count, _)| base + i64::from(*count) <= to);
                }
                Step::Reopen => {
                    log.close().unwrap();
                    log = open(dir.path(), true, log.end().0);
                }
                Step::Tear(bytes) => {
                    drop(log);
                    let path = last_file(dir.path());
                    let file = OpenOptions::new().write(true).open(&path).unwrap();
                    let length = file.metadata().unwrap().len();
                    file.set_len(length.saturating_sub(u64::from(bytes))).unwrap();
                    log = open(dir.path(), false, 0);
                    model.retain(|(base, count, _)| base + i64::from(*count) <= log.end().0);
                    // A batch is there as a whole, or not at all; older segments are untouched.
                    let name = path.file_stem().unwrap().to_str().unwrap();
                    prop_assert!(log.end().0 >= name.parse::<i64>().unwrap());
                }
                Step::LoseIndexes => {
                    drop(log);
                    for entry in fs::read_dir(dir.path()).unwrap() {
                        let path = entry.unwrap().path();
                        if path.extension().is_some_and(|it| it == "index") {
                            fs::remove_file(path).unwrap();
                        }
                    }
                    log = open(dir.path(), false, 0);
                }
            }
            let expected: Vec<(i64, i32)> = model
                .iter()
                .flat_map(|(base, count, epoch)| {
                    (0..*count).map(move |delta| (base + i64::from(delta), *epoch))
                })
                .collect();
            prop_assert_eq!(contents(&log, Offset(0)), expected.clone());
            prop_assert_eq!(log.end().0, expected.last().map_or(0, |(offset, _)| offset + 1));
            for (offset, epoch) in expected {
                prop_assert_eq!(log.epochs().epoch_of(Offset(offset)), Some(LeaderEpoch(epoch)));
            }
        }
    }
}
