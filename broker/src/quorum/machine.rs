//! What the metadata log adds up to, and snapshots of it.

use std::fs;
use std::io::{self, Cursor};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use openraft::storage::{RaftStateMachine, Snapshot};
use openraft::{EntryPayload, OptionalSend, RaftSnapshotBuilder, StorageIOError};
use serde::{Deserialize, Serialize};
use tokio::sync::watch;
use tokio::task::spawn_blocking;
use tracing::{info, warn};

use super::types::{LogId, Membership, RaftEntry, SnapshotMeta, StorageError, Taken, Types};
use super::{Applied, QuorumError};
use crate::controller::entry::Metadata;
use crate::log::checkpoint::write_atomically;

const PREFIX: &str = "snapshot-";
/// The newest one, and the one before.
const KEPT: usize = 2;

/// A snapshot as it lies on disk.
#[derive(Debug, Serialize, Deserialize)]
struct Stored {
    meta: SnapshotMeta,
    state: Metadata,
}

/// The state machine; clones are the same one.
#[derive(Clone, Debug)]
pub(super) struct Machine(Arc<Mutex<Inner>>);

#[derive(Debug)]
struct Inner {
    dir: PathBuf,
    state: Arc<Metadata>,
    applied: Option<LogId>,
    membership: Membership,
    told: watch::Sender<Applied>,
    newest: Option<(SnapshotMeta, Vec<u8>)>,
    /// The last entry in the newest snapshot on disk.
    stored: watch::Sender<Option<LogId>>,
}

/// A snapshot's file: its checksum in hex, a space, and JSON.
fn sealed(json: &str) -> String {
    format!("{:08x} {json}", crc32c::crc32c(json.as_bytes()))
}

/// The JSON in a snapshot's file, if it is as it was written.
fn unsealed(text: &str) -> Option<&str> {
    let (crc, json) = text.split_once(' ')?;
    let fits = u32::from_str_radix(crc, 16).ok()? == crc32c::crc32c(json.as_bytes());
    fits.then_some(json)
}

fn index_of(applied: Option<LogId>) -> i64 {
    applied.map_or(-1, |id| i64::try_from(id.index).unwrap_or(i64::MAX))
}

impl Machine {
    /// Begins with the newest good snapshot in `dir`.
    ///
    /// # Errors
    /// The disk.
    pub(super) fn open(dir: &Path) -> Result<Self, QuorumError> {
        let disk = |error: io::Error| QuorumError::Disk {
            path: dir.to_owned(),
            reason: error.to_string(),
        };
        fs::create_dir_all(dir).map_err(disk)?;
        let mut inner = Inner {
            dir: dir.to_owned(),
            state: Arc::default(),
            applied: None,
            membership: Membership::default(),
            told: watch::Sender::new(Applied { state: Arc::default(), index: -1 }),
            newest: None,
            stored: watch::Sender::new(None),
        };
        let mut names = snapshots(dir).map_err(disk)?;
        while let Some(path) = names.pop() {
            let read = String::from_utf8(fs::read(&path).map_err(disk)?);
            let json = read.as_deref().ok().and_then(unsealed);
            let Some(stored) = json.and_then(|json| serde_json::from_str::<Stored>(json).ok())
            else {
                warn!(path = %path.display(), "a snapshot is damaged; looks for an older one");
                continue;
            };
            info!(path = %path.display(), "begins with a snapshot of the metadata");
            inner.stored.send_replace(stored.meta.last_log_id);
            inner.take(stored, json.unwrap_or_default().as_bytes().to_vec());
            break;
        }
        Ok(Self(Arc::new(Mutex::new(inner))))
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is applied, now and later.
    pub(super) fn watch(&self) -> watch::Receiver<Applied> {
        self.lock().told.subscribe()
    }

    /// The last entry that is in a snapshot on disk, now and later.
    pub(super) fn in_snapshot(&self) -> watch::Receiver<Option<LogId>> {
        self.lock().stored.subscribe()
    }

    async fn store(&self, stored: Stored) -> io::Result<(SnapshotMeta, Vec<u8>)> {
        let machine = self.clone();
        spawn_blocking(move || {
            let text = serde_json::to_string(&stored)?;
            let dir = machine.lock().dir.clone();
            let index = stored.meta.last_log_id.map_or(0, |id| id.index);
            let path = dir.join(format!("{PREFIX}{index:020}.json"));
            write_atomically(&path, &sealed(&text)).map_err(io::Error::other)?;
            let mut names = snapshots(&dir)?;
            names.truncate(names.len().saturating_sub(KEPT));
            for old in names {
                fs::remove_file(old)?;
            }
            let newest = (stored.meta, text.into_bytes());
            let mut inner = machine.lock();
            inner.newest = Some(newest.clone());
            inner.stored.send_if_modified(|stored| {
                let grows = *stored < newest.0.last_log_id;
                *stored = (*stored).max(newest.0.last_log_id);
                grows
            });
            Ok(newest)
        })
        .await
        .unwrap_or_else(|error| Err(io::Error::other(error)))
    }
}

/// Oldest first.
fn snapshots(dir: &Path) -> io::Result<Vec<PathBuf>> {
    let mut found: Vec<PathBuf> = fs::read_dir(dir)?
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            name.starts_with(PREFIX) && path.extension().is_some_and(|it| it == "json")
        })
        .collect();
    found.sort();
    Ok(found)
}

impl Inner {
    fn take(&mut self, stored: Stored, bytes: Vec<u8>) {
        self.state = Arc::new(stored.state);
        self.applied = stored.meta.last_log_id;
        self.membership = stored.meta.last_membership.clone();
        self.newest = Some((stored.meta, bytes));
        self.tell();
    }

    fn tell(&self) {
        self.told.send_replace(Applied {
            state: Arc::clone(&self.state),
            index: index_of(self.applied),
        });
    }

    fn apply(&mut self, entry: RaftEntry) -> Taken {
        self.applied = Some(entry.log_id);
        match entry.payload {
            EntryPayload::Blank => Taken(true),
            EntryPayload::Membership(membership) => {
                self.membership = Membership::new(Some(entry.log_id), membership);
                Taken(true)
            }
            EntryPayload::Normal(proposal) => {
                if proposal.term != entry.log_id.leader_id.term {
                    warn!(
                        index = entry.log_id.index,
                        decided = proposal.term,
                        term = entry.log_id.leader_id.term,
                        "a decision of a term that was over does not count"
                    );
                    return Taken(false);
                }
                let index = index_of(self.applied);
                Arc::make_mut(&mut self.state).apply(index, &proposal.entry);
                Taken(true)
            }
        }
    }
}

impl RaftSnapshotBuilder<Types> for Machine {
    async fn build_snapshot(&mut self) -> Result<Snapshot<Types>, StorageError> {
        let stored = {
            let inner = self.lock();
            let meta = SnapshotMeta {
                last_log_id: inner.applied,
                last_membership: inner.membership.clone(),
                snapshot_id: format!("{}", index_of(inner.applied)),
            };
            Stored { meta, state: (*inner.state).clone() }
        };
        let (meta, bytes) = self
            .store(stored)
            .await
            .map_err(|error| StorageIOError::write_snapshot(None, &error))?;
        info!(index = index_of(meta.last_log_id), bytes = bytes.len(), "made a snapshot");
        Ok(Snapshot { meta, snapshot: Box::new(Cursor::new(bytes)) })
    }
}

impl RaftStateMachine<Types> for Machine {
    type SnapshotBuilder = Self;

    async fn applied_state(&mut self) -> Result<(Option<LogId>, Membership), StorageError> {
        let inner = self.lock();
        Ok((inner.applied, inner.membership.clone()))
    }

    async fn apply<I>(&mut self, entries: I) -> Result<Vec<Taken>, StorageError>
    where
        I: IntoIterator<Item = RaftEntry> + OptionalSend,
        I::IntoIter: OptionalSend,
    {
        let mut inner = self.lock();
        let taken = entries.into_iter().map(|entry| inner.apply(entry)).collect();
        inner.tell();
        Ok(taken)
    }

    async fn get_snapshot_builder(&mut self) -> Self::SnapshotBuilder {
        self.clone()
    }

    async fn begin_receiving_snapshot(&mut self) -> Result<Box<Cursor<Vec<u8>>>, StorageError> {
        Ok(Box::default())
    }

    async fn install_snapshot(
        &mut self,
        meta: &SnapshotMeta,
        snapshot: Box<Cursor<Vec<u8>>>,
    ) -> Result<(), StorageError> {
        let bytes = snapshot.into_inner();
        let signature = Some(meta.signature());
        let stored: Stored = serde_json::from_slice(&bytes)
            .map_err(|error| StorageIOError::read_snapshot(signature.clone(), &error))?;
        let state = stored.state.clone();
        let stored = Stored { meta: meta.clone(), state: stored.state };
        self.store(stored)
            .await
            .map_err(|error| StorageIOError::write_snapshot(signature, &error))?;
        info!(index = index_of(meta.last_log_id), "takes over a snapshot of the metadata");
        self.lock().take(Stored { meta: meta.clone(), state }, bytes);
        Ok(())
    }

    async fn get_current_snapshot(&mut self) -> Result<Option<Snapshot<Types>>, StorageError> {
        let newest = self.lock().newest.clone();
        Ok(newest.map(|(meta, bytes)| Snapshot { meta, snapshot: Box::new(Cursor::new(bytes)) }))
    }
}
