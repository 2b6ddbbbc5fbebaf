//! The log of the quorum on disk: one line an entry, its checksum before it, so that a person can
//! read it; the vote in a small file of its own.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::ops::RangeBounds;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use openraft::storage::{LogFlushed, LogState, RaftLogStorage};
use openraft::{OptionalSend, RaftLogReader, StorageIOError};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::task::spawn_blocking;
use tracing::warn;

use super::QuorumError;
use super::types::{LogId, RaftEntry, StorageError, Types, Vote};
use crate::log::checkpoint::write_atomically;

const LOG: &str = "metadata.log";
const VOTE: &str = "vote.json";
const PURGED: &str = "purged.json";
/// The file is written anew once so much of it is of purged entries.
const REWRITE_AFTER: u64 = 4 * 1024 * 1024;

/// The log on disk; clones are the same log.
#[derive(Clone, Debug)]
pub(super) struct LogStore(Arc<Mutex<Inner>>);

#[derive(Debug)]
struct Inner {
    dir: PathBuf,
    file: File,
    /// Entries, and where each begins in the file.
    entries: BTreeMap<u64, (u64, RaftEntry)>,
    end: u64,
    purged: Option<LogId>,
    vote: Option<Vote>,
}

fn crc_line(json: &str) -> String {
    format!("{:08x} {json}\n", crc32c::crc32c(json.as_bytes()))
}

/// The entry on a line, if its checksum fits.
fn parse(line: &str) -> Option<RaftEntry> {
    let (crc, json) = line.split_once(' ')?;
    let fits = u32::from_str_radix(crc, 16).ok()? == crc32c::crc32c(json.as_bytes());
    fits.then(|| serde_json::from_str(json).ok()).flatten()
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
    /// Opens the log in `dir`. A torn last line is cut off, and said.
    ///
    /// # Errors
    /// The disk; an entry in the middle whose checksum does not fit.
    pub(super) fn open(dir: &Path) -> Result<Self, QuorumError> {
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
        let (entries, end) = read_entries(&path, &bytes)?;
        if end < bytes.len() as u64 {
            warn!(
                path = %path.display(),
                bytes = bytes.len() as u64 - end,
                "a torn entry of the metadata log is cut off; nobody counted on it"
            );
            file.set_len(end).and_then(|()| file.sync_all()).map_err(disk)?;
        }
        let purged = read_json(&dir.join(PURGED))?;
        let vote = read_json(&dir.join(VOTE))?;
        let inner = Inner { dir: dir.to_owned(), file, entries, end, purged, vote };
        Ok(Self(Arc::new(Mutex::new(inner))))
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
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

/// The entries in the file, and where the last whole one ends.
fn read_entries(path: &Path, bytes: &[u8]) -> Result<(Entries, u64), QuorumError> {
    let mut entries = Entries::new();
    let mut at = 0;
    while at < bytes.len() {
        let rest = &bytes[at..];
        let Some(length) = rest.iter().position(|byte| *byte == b'\n') else { break };
        let entry = std::str::from_utf8(&rest[..length]).ok().and_then(parse);
        let Some(entry) = entry else {
            if at + length + 1 == bytes.len() {
                // The last line: torn while it was written, with the line's end in it by chance.
                break;
            }
            return Err(QuorumError::Disk {
                path: path.to_owned(),
                reason: format!(
                    "the entry at byte {at} is damaged. If the other voters are well, remove \
                     this node's metadata folder and let it follow them anew"
                ),
            });
        };
        entries.insert(entry.log_id.index, (at as u64, entry));
        at += length + 1;
    }
    Ok((entries, at as u64))
}

impl Inner {
    fn append(&mut self, entries: Vec<RaftEntry>) -> io::Result<()> {
        let mut text = String::new();
        let mut places = Vec::with_capacity(entries.len());
        for entry in entries {
            places.push((self.end + text.len() as u64, entry.clone()));
            text.push_str(&crc_line(&serde_json::to_string(&entry)?));
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
            let line = crc_line(&serde_json::to_string(entry)?);
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

    async fn purge(&mut self, log_id: LogId) -> Result<(), StorageError> {
        self.work(move |inner| inner.purge(log_id))
            .await
            .map_err(|error| StorageIOError::write_logs(&error).into())
    }
}
