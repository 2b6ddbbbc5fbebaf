//! The log of the quorum on disk: the entries in a file of lines, the vote and the last entry that
//! was purged in small files of their own.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::ops::RangeBounds;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use openraft::storage::{LogFlushed, LogState, RaftLogStorage};
use openraft::{OptionalSend, RaftLogReader, StorageIOError};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::sync::watch;
use tokio::task::spawn_blocking;
use tokio::time::timeout;
use tracing::warn;

use super::QuorumError;
use super::lines::{self, line};
use super::types::{LogId, RaftEntry, StorageError, Types, Vote};
use crate::log::checkpoint::write_atomically;

const LOG: &str = "metadata.log";
const VOTE: &str = "vote.json";
const PURGED: &str = "purged.json";
/// The file is written anew once so much of it is of purged entries.
const REWRITE_AFTER: u64 = 4 * 1024 * 1024;
/// The longest that a snapshot may take to reach the disk.
const SNAPSHOT_LIMIT: Duration = Duration::from_secs(60);

/// The log on disk; clones are the same log.
#[derive(Clone, Debug)]
pub(super) struct LogStore {
    inner: Arc<Mutex<Inner>>,
    /// The last entry that is in a snapshot on disk.
    in_snapshot: watch::Receiver<Option<LogId>>,
}

#[derive(Debug)]
struct Inner {
    dir: PathBuf,
    file: File,
    /// Entries, and where each begins in the file.
    entries: Entries,
    end: u64,
    purged: Option<LogId>,
    vote: Option<Vote>,
}

fn read_json<T: DeserializeOwned>(path: &Path) -> Result<Option<T>, QuorumError> {
    let damaged = |reason: String| QuorumError::Disk { path: path.to_owned(), reason };
    match fs::read_to_string(path) {
        Ok(text) => serde_json::from_str(&text).map(Some).map_err(|e| damaged(e.to_string())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(damaged(error.to_string())),
    }
}

fn write_json<T: Serialize>(path: &Path, value: &T) -> io::Result<()> {
    let text = serde_json::to_string(value)?;
    write_atomically(path, &text).map_err(io::Error::other)
}

impl LogStore {
    /// Opens the log in `dir`. A torn end is cut off, and said. Entries are purged only once
    /// `in_snapshot` tells that a snapshot on disk has them.
    ///
    /// # Errors
    /// The disk; an entry that is damaged or missing.
    pub(super) fn open(
        dir: &Path,
        in_snapshot: watch::Receiver<Option<LogId>>,
    ) -> Result<Self, QuorumError> {
        let path = dir.join(LOG);
        let disk =
            |error: io::Error| QuorumError::Disk { path: path.clone(), reason: error.to_string() };
        fs::create_dir_all(dir).map_err(disk)?;
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(&path)
            .map_err(disk)?;
        let bytes = fs::read(&path).map_err(disk)?;
        let read = lines::read(&bytes)
            .map_err(|at| unusable(&path, &format!("the entry at byte {at} is damaged")))?;
        let end = read.end as u64;
        if read.end < bytes.len() {
            warn!(
                path = %path.display(),
                bytes = bytes.len() - read.end,
                "a torn entry of the metadata log is cut off; nobody counted on it"
            );
            file.set_len(end).map_err(disk)?;
        }
        // A process that was killed may have left what it had not synced yet. What is told of from
        // now on must be on disk.
        file.sync_all().and_then(|()| File::open(dir)?.sync_all()).map_err(disk)?;
        let purged: Option<LogId> = read_json(&dir.join(PURGED))?;
        let vote = read_json(&dir.join(VOTE))?;
        let kept = read.entries.into_iter().map(|(at, entry)| (entry.log_id.index, (at, entry)));
        let entries: Entries =
            kept.filter(|(index, _)| purged.is_none_or(|purged| *index > purged.index)).collect();
        let first = purged.map_or(0, |purged| purged.index + 1);
        if let Some((missing, _)) = (first..).zip(entries.keys()).find(|(at, index)| at != *index) {
            return Err(unusable(&path, &format!("entry {missing} is missing")));
        }
        if purged.is_some_and(|purged| *in_snapshot.borrow() < Some(purged)) {
            let snapshot = in_snapshot.borrow().map_or(-1, |id| i128::from(id.index));
            return Err(unusable(
                &path,
                &format!("it begins at entry {first}, and the snapshot ends with {snapshot}"),
            ));
        }
        let inner = Inner { dir: dir.to_owned(), file, entries, end, purged, vote };
        Ok(Self { inner: Arc::new(Mutex::new(inner)), in_snapshot })
    }

    /// The last entry.
    pub(super) fn last(&self) -> Option<LogId> {
        self.lock().last()
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Does disk work on a thread that may wait for it.
    async fn work<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Inner) -> io::Result<T> + Send + 'static,
    ) -> io::Result<T> {
        let store = self.clone();
        spawn_blocking(move || work(&mut store.lock()))
            .await
            .unwrap_or_else(|error| Err(io::Error::other(error)))
    }
}

type Entries = BTreeMap<u64, (u64, RaftEntry)>;

fn unusable(path: &Path, reason: &str) -> QuorumError {
    QuorumError::Disk {
        path: path.to_owned(),
        reason: format!(
            "{reason}. If the other voters are well, remove this node's metadata folder and let it \
             follow them anew"
        ),
    }
}

impl Inner {
    fn append(&mut self, entries: Vec<RaftEntry>) -> io::Result<()> {
        let mut text = String::new();
        let mut places = Vec::with_capacity(entries.len());
        for entry in entries {
            places.push((self.end + text.len() as u64, entry.clone()));
            text.push_str(&line(self.end, &serde_json::to_string(&entry)?));
        }
        self.file.write_all_at(text.as_bytes(), self.end)?;
        self.file.sync_data()?;
        self.end += text.len() as u64;
        for (at, entry) in places {
            self.entries.insert(entry.log_id.index, (at, entry));
        }
        Ok(())
    }

    fn truncate(&mut self, from: u64) -> io::Result<()> {
        let gone = self.entries.split_off(&from);
        if let Some((at, _)) = gone.values().next() {
            self.file.set_len(*at)?;
            self.file.sync_data()?;
            self.end = *at;
        }
        Ok(())
    }

    fn purge(&mut self, up_to: LogId) -> io::Result<()> {
        self.entries = self.entries.split_off(&(up_to.index + 1));
        self.purged = Some(up_to);
        write_json(&self.dir.join(PURGED), &self.purged)?;
        let first = self.entries.values().next().map_or(self.end, |(at, _)| *at);
        if first < REWRITE_AFTER {
            return Ok(());
        }
        let path = self.dir.join(LOG);
        let other = self.dir.join("metadata.log.tmp");
        let mut file =
            OpenOptions::new().read(true).write(true).create(true).truncate(true).open(&other)?;
        let mut at = 0;
        for (begin, entry) in self.entries.values_mut() {
            let line = line(0, &serde_json::to_string(entry)?);
            file.write_all(line.as_bytes())?;
            *begin = at;
            at += line.len() as u64;
        }
        file.sync_all()?;
        fs::rename(&other, &path)?;
        File::open(&self.dir)?.sync_all()?;
        self.file = file;
        self.end = at;
        Ok(())
    }

    fn last(&self) -> Option<LogId> {
        self.entries.values().next_back().map(|(_, entry)| entry.log_id).or(self.purged)
    }
}

impl RaftLogReader<Types> for LogStore {
    async fn try_get_log_entries<RB: RangeBounds<u64> + Clone + Debug + OptionalSend>(
        &mut self,
        range: RB,
    ) -> Result<Vec<RaftEntry>, StorageError> {
        Ok(self.lock().entries.range(range).map(|(_, (_, entry))| entry.clone()).collect())
    }
}

impl RaftLogStorage<Types> for LogStore {
    type LogReader = Self;

    async fn get_log_state(&mut self) -> Result<LogState<Types>, StorageError> {
        let inner = self.lock();
        Ok(LogState { last_purged_log_id: inner.purged, last_log_id: inner.last() })
    }

    async fn get_log_reader(&mut self) -> Self::LogReader {
        self.clone()
    }

    async fn save_vote(&mut self, vote: &Vote) -> Result<(), StorageError> {
        let vote = *vote;
        self.work(move |inner| {
            write_json(&inner.dir.join(VOTE), &vote)?;
            inner.vote = Some(vote);
            Ok(())
        })
        .await
        .map_err(|error| StorageIOError::write_vote(&error).into())
    }

    async fn read_vote(&mut self) -> Result<Option<Vote>, StorageError> {
        Ok(self.lock().vote)
    }

    async fn append<I>(
        &mut self,
        entries: I,
        callback: LogFlushed<Types>,
    ) -> Result<(), StorageError>
    where
        I: IntoIterator<Item = RaftEntry> + OptionalSend,
        I::IntoIter: OptionalSend,
    {
        let entries: Vec<RaftEntry> = entries.into_iter().collect();
        let written = self.work(move |inner| inner.append(entries)).await;
        match written {
            Ok(()) => {
                callback.log_io_completed(Ok(()));
                Ok(())
            }
            Err(error) => Err(StorageIOError::write_logs(&error).into()),
        }
    }

    async fn truncate(&mut self, log_id: LogId) -> Result<(), StorageError> {
        self.work(move |inner| inner.truncate(log_id.index))
            .await
            .map_err(|error| StorageIOError::write_logs(&error).into())
    }

    /// Openraft purges what a snapshot has that it was just told to install, which goes on beside
    /// this; a node that ends between the two must find one or the other.
    async fn purge(&mut self, log_id: LogId) -> Result<(), StorageError> {
        let mut in_snapshot = self.in_snapshot.clone();
        let stored = async { in_snapshot.wait_for(|stored| *stored >= Some(log_id)).await.is_ok() };
        let purged = if timeout(SNAPSHOT_LIMIT, stored).await.unwrap_or(false) {
            self.work(move |inner| inner.purge(log_id)).await
        } else {
            let awaited = format!("no snapshot with entry {log_id} on disk in {SNAPSHOT_LIMIT:?}");
            Err(io::Error::new(io::ErrorKind::TimedOut, awaited))
        };
        purged.map_err(|error| StorageIOError::write_logs(&error).into())
    }
}
