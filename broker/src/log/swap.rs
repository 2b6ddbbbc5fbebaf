//! Segments are exchanged for compacted ones, so that a crash at any moment leaves the old ones or the
//! new one: what is written is `BASE-END.cleaned`; once it is on disk it becomes `BASE-END.swap`, and
//! that is the moment of the exchange; then the old ones go and it takes their place. Opening a log
//! forgets the former and finishes the latter.

use std::fs::{self, File};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use replication::types::Offset;
use tracing::info;

use crate::log::compaction::{Compacted, Group};
use crate::log::segment::{Segment, path, remove_files};
use crate::log::{Log, LogError};

const CLEANED: &str = "cleaned";
const SWAP: &str = "swap";

fn name(dir: &Path, base: Offset, end: Offset, extension: &str) -> PathBuf {
    dir.join(format!("{:020}-{:020}.{extension}", base.0, end.0))
}

fn sync_folder(dir: &Path) -> Result<(), LogError> {
    File::open(dir).and_then(|folder| folder.sync_all()).map_err(LogError::disk(dir))
}

/// A compacted segment while it is written.
#[derive(Debug)]
pub(super) struct Cleaned {
    path: PathBuf,
    file: File,
    size: u64,
}

impl Cleaned {
    /// Begins one, for what lies from `base` to `end`.
    pub(super) fn create(dir: &Path, base: Offset, end: Offset) -> Result<Self, LogError> {
        let path = name(dir, base, end, CLEANED);
        let file = File::create(&path).map_err(LogError::disk(&path))?;
        Ok(Self { path, file, size: 0 })
    }

    /// Writes a whole batch behind the others.
    pub(super) fn append(&mut self, bytes: &[u8]) -> Result<(), LogError> {
        self.file.write_all_at(bytes, self.size).map_err(LogError::disk(&self.path))?;
        self.size += bytes.len() as u64;
        Ok(())
    }

    /// Brings it to the disk; how large it is.
    pub(super) fn finish(self) -> Result<u64, LogError> {
        self.file.sync_all().map_err(LogError::disk(&self.path))?;
        Ok(self.size)
    }

    /// It is not wanted.
    pub(super) fn discard(self) -> Result<(), LogError> {
        fs::remove_file(&self.path).map_err(LogError::disk(&self.path))
    }
}

impl Log {
    /// Exchanges what was compacted, unless the log is another by now: it may have been cut, and what
    /// was there later is what made earlier records go. How many bytes that freed.
    ///
    /// # Errors
    /// The disk.
    pub fn finish_compaction(&mut self, done: &Compacted) -> Result<u64, LogError> {
        if self.cuts != done.cuts || !done.groups.iter().all(|group| self.still_holds(group)) {
            return forget(&done.dir).map(|()| 0);
        }
        let mut freed = 0;
        for group in &done.groups {
            let Some(bytes) = group.bytes else { continue };
            self.exchange(group)?;
            freed += group.old.iter().map(|old| old.size).sum::<u64>().saturating_sub(bytes);
        }
        self.cleaned_to = self.cleaned_to.max(done.cleaned_to.min(self.end));
        Ok(freed)
    }

    fn still_holds(&self, group: &Group) -> bool {
        group.old.iter().all(|old| {
            let segment = self.segments.get(&old.base);
            segment.is_some_and(|segment| Arc::ptr_eq(&segment.file, &old.file))
        })
    }

    fn exchange(&mut self, group: &Group) -> Result<(), LogError> {
        let (base, end) = (group.base(), group.end());
        let swap = name(&self.dir, base, end, SWAP);
        let cleaned = name(&self.dir, base, end, CLEANED);
        fs::rename(&cleaned, &swap).map_err(LogError::disk(&cleaned))?;
        sync_folder(&self.dir)?;
        for old in &group.old {
            self.segments.remove(&old.base);
            self.unsynced.retain(|file| !Arc::ptr_eq(file, &old.file));
        }
        take_place(&self.dir, &swap, base, end)?;
        let mut segment = Segment::open(&self.dir, base)?;
        super::recover::reindex(&mut segment, self.settings.index_interval_bytes)?;
        segment.write_time()?;
        self.segments.insert(base, segment);
        Ok(())
    }
}

/// What a crash left of an exchange is finished or forgotten.
pub(super) fn recover(dir: &Path) -> Result<(), LogError> {
    forget(dir)?;
    for (swap, base, end) in left_over(dir, SWAP)? {
        info!(log = %dir.display(), %base, %end, "finishes the exchange of compacted segments");
        take_place(dir, &swap, base, end)?;
    }
    Ok(())
}

fn forget(dir: &Path) -> Result<(), LogError> {
    for (cleaned, ..) in left_over(dir, CLEANED)? {
        fs::remove_file(&cleaned).map_err(LogError::disk(&cleaned))?;
    }
    Ok(())
}

/// The old segments go, and `swap` takes their place.
fn take_place(dir: &Path, swap: &Path, base: Offset, end: Offset) -> Result<(), LogError> {
    for old in super::recover::bases(dir)?.into_iter().filter(|old| (base..end).contains(old)) {
        remove_files(dir, old)?;
    }
    fs::rename(swap, path(dir, base, "log")).map_err(LogError::disk(swap))?;
    sync_folder(dir)
}

/// Files of this kind, and the offsets in their names.
fn left_over(dir: &Path, extension: &str) -> Result<Vec<(PathBuf, Offset, Offset)>, LogError> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).map_err(LogError::disk(dir))? {
        let path = entry.map_err(LogError::disk(dir))?.path();
        if path.extension().is_none_or(|it| it != extension) {
            continue;
        }
        let stem = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let offsets = stem
            .split_once('-')
            .and_then(|(base, end)| Some((Offset(base.parse().ok()?), Offset(end.parse().ok()?))));
        if let Some((base, end)) = offsets {
            found.push((path, base, end));
        }
    }
    found.sort();
    Ok(found)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use kafka_protocol::records::Compression;
    use proptest::prelude::*;
    use tempfile::TempDir;

    use super::*;
    use crate::log::LogSettings;
    use crate::log::batch::batches;
    use crate::log::records::each_record;
    use crate::log::records::tests::encoded;

    fn settings() -> LogSettings {
        LogSettings {
            segment_bytes: 300,
            index_interval_bytes: 100,
            compacts: true,
            deletes: false,
            min_dirty_ratio: 0.0,
            delete_retention_ms: 0,
            ..LogSettings::default()
        }
    }

    fn open(dir: &Path) -> Log {
        Log::open(dir, settings(), true, Offset(0), Offset(0)).unwrap().0
    }

    /// Offset, key and value of each record.
    type Contents = Vec<(i64, u8, Option<u8>)>;

    fn contents(log: &Log) -> Contents {
        let mut found = Vec::new();
        let mut next = log.start();
        while next < log.end() {
            let bytes = log.read(next, log.end(), 150, true).unwrap();
            assert!(!bytes.is_empty(), "nothing at {next} of {}", log.end());
            for batch in batches(&bytes) {
                let (at, batch) = batch.unwrap();
                each_record(&bytes[at..at + batch.bytes], &batch, |record| {
                    let offset = batch.base_offset + record.offset_delta;
                    found.push((offset.0, record.key.unwrap()[0], record.value.map(|v| v[0])));
                })
                .unwrap();
                next = batch.next_offset();
            }
        }
        found
    }

    fn append(log: &mut Log, pairs: &[(u8, Option<u8>)]) {
        let pairs: Vec<_> = pairs
            .iter()
            .map(|(key, value)| (Some(vec![*key]), value.map(|value| vec![value])))
            .collect();
        log.append(&encoded(log.end().0, &pairs, Compression::None)).unwrap();
    }

    fn compact(log: &mut Log, limit: Offset) -> u64 {
        let Some(compaction) = log.begin_compaction(limit, i64::MAX) else { return 0 };
        log.finish_compaction(&compaction.run().unwrap()).unwrap()
    }

    fn compact_all(log: &mut Log) -> u64 {
        let end = log.end();
        compact(log, end)
    }

    fn filled() -> (TempDir, Log) {
        let dir = tempfile::tempdir().unwrap();
        let mut log = open(dir.path());
        for value in 0..40 {
            append(&mut log, &[(value % 3, Some(value)), (9, Some(value))]);
        }
        (dir, log)
    }

    #[test]
    fn the_last_of_each_key_is_left_and_the_open_segment_is_untouched() {
        let (dir, mut log) = filled();
        let before = contents(&log);
        let active = log.segments.keys().next_back().unwrap().0;
        assert!(compact_all(&mut log) > 0);
        let after = contents(&log);
        let last = |key: u8| before.iter().rev().find(|(at, k, _)| *k == key && *at < active);
        let mut expected: Contents =
            [0, 1, 2, 9].iter().filter_map(|key| last(*key)).copied().collect();
        expected.extend(before.iter().filter(|(at, ..)| *at >= active));
        expected.sort_unstable();
        assert_eq!(after, expected);
        assert_eq!(log.cleaned_to(), Offset(active));
        assert_eq!(compact_all(&mut log), 0, "there is nothing new");
        drop(log);
        let log = open(dir.path());
        assert_eq!((contents(&log), log.start()), (after, Offset(0)));
    }

    #[test]
    fn the_crumbs_of_one_time_become_one_the_next_time() {
        let (_dir, mut log) = filled();
        let before = log.segments.len();
        compact_all(&mut log);
        assert_eq!(log.segments.len(), before);
        for value in 0..40 {
            append(&mut log, &[(value % 3, Some(value))]);
        }
        let dirty = log.segments.len() - before;
        compact_all(&mut log);
        assert!(log.segments.len() <= dirty + 2, "{} and {dirty}", log.segments.len());
    }

    #[test]
    fn what_is_above_the_high_watermark_is_not_touched() {
        let (_dir, mut log) = filled();
        let before = contents(&log);
        compact(&mut log, Offset(30));
        let above =
            |all: &Contents| all.iter().filter(|it| it.0 >= 30).copied().collect::<Contents>();
        assert_eq!(above(&contents(&log)), above(&before));
    }

    #[test]
    fn a_log_that_was_cut_meanwhile_keeps_what_it_has() {
        let (dir, mut log) = filled();
        let compaction = log.begin_compaction(log.end(), 0).unwrap();
        let done = compaction.run().unwrap();
        log.truncate_to(Offset(20)).unwrap();
        let before = contents(&log);
        log.finish_compaction(&done).unwrap();
        assert_eq!(contents(&log), before);
        assert!(left_over(dir.path(), CLEANED).unwrap().is_empty());
    }

    /// What was there later made earlier records go: if it is cut, they must not.
    #[test]
    fn nothing_is_exchanged_after_a_cut_above_it() {
        let (_dir, mut log) = filled();
        let done = log.begin_compaction(log.end(), 0).unwrap().run().unwrap();
        log.truncate_to(Offset(78)).unwrap();
        let before = contents(&log);
        assert_eq!(log.finish_compaction(&done).unwrap(), 0);
        assert_eq!(contents(&log), before);
    }

    /// The folder as a crash would leave it at each step of an exchange.
    #[test]
    fn a_crash_at_any_step_leaves_the_old_or_the_new() {
        let (dir, log) = filled();
        let old = contents(&log);
        let done = log.begin_compaction(log.end(), 0).unwrap().run().unwrap();
        let group = &done.groups[0];
        let (base, end) = (group.base(), group.end());
        drop(log);
        // Written, and not exchanged.
        assert_eq!(contents(&open(dir.path())), old);
        assert!(left_over(dir.path(), CLEANED).unwrap().is_empty());
        let mut log = open(dir.path());
        let done = log.begin_compaction(log.end(), 0).unwrap().run().unwrap();
        log.finish_compaction(&done).unwrap();
        let new = contents(&log);
        drop(log);
        // Exchanged, and some of the old ones are still there: those of another log of the same.
        let (other, log) = filled();
        drop(log);
        let swap = name(other.path(), base, end, SWAP);
        fs::copy(path(dir.path(), base, "log"), &swap).unwrap();
        remove_files(other.path(), base).unwrap();
        let (below, above) = (new.iter().filter(|it| it.0 < end.0), old.iter());
        let mixed: Contents = below.chain(above.filter(|it| it.0 >= end.0)).copied().collect();
        assert_ne!(mixed, old);
        assert_eq!(contents(&open(other.path())), mixed);
        assert!(left_over(other.path(), SWAP).unwrap().is_empty());
    }

    #[derive(Clone, Debug)]
    enum Step {
        Append(Vec<(u8, Option<u8>)>),
        Compact(prop::sample::Index),
        Reopen,
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let pair = (0..6_u8, prop::option::weighted(0.8, any::<u8>()));
        let step = prop_oneof![
            8 => prop::collection::vec(pair, 1..5).prop_map(Step::Append),
            2 => any::<prop::sample::Index>().prop_map(Step::Compact),
            1 => Just(Step::Reopen),
        ];
        prop::collection::vec(step, 1..60)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn who_reads_all_knows_the_last_value_of_each_key(steps in steps()) {
            let dir = tempfile::tempdir().unwrap();
            let mut log = open(dir.path());
            let mut all: Contents = Vec::new();
            for step in steps {
                match step {
                    Step::Append(pairs) => {
                        let base = log.end().0;
                        all.extend((base..).zip(&pairs).map(|(at, (k, v))| (at, *k, *v)));
                        append(&mut log, &pairs);
                    }
                    Step::Compact(at) => {
                        let end = usize::try_from(log.end().0).unwrap();
                        compact(&mut log, Offset(i64::try_from(at.index(end + 1)).unwrap()));
                    }
                    Step::Reopen => {
                        let cleaned_to = log.cleaned_to();
                        log.close().unwrap();
                        log = open(dir.path());
                        log.set_cleaned_to(cleaned_to);
                    }
                }
                let left = contents(&log);
                prop_assert!(left.iter().all(|record| all.contains(record)));
                prop_assert!(left.windows(2).all(|pair| pair[0].0 < pair[1].0));
                let cleaned_to = log.cleaned_to().0;
                prop_assert!(all.iter().filter(|it| it.0 >= cleaned_to).all(|it| left.contains(it)));
                let values = |records: &Contents| -> BTreeMap<u8, u8> {
                    let mut values = BTreeMap::new();
                    for (_, key, value) in records {
                        match value {
                            Some(value) => values.insert(*key, *value),
                            None => values.remove(key),
                        };
                    }
                    values
                };
                prop_assert_eq!(values(&left), values(&all));
                let clean: Vec<u8> =
                    left.iter().filter(|it| it.0 < cleaned_to).map(|it| it.1).collect();
                let keys: std::collections::BTreeSet<u8> = clean.iter().copied().collect();
                prop_assert_eq!(clean.len(), keys.len(), "a key twice in the clean part");
            }
        }
    }
}
