//! The folder of all logs of a node.

use std::fmt::Write as _;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use nix::fcntl::{Flock, FlockArg};
use replication::types::{BrokerEpoch, NodeId, Offset, PartitionId};
use serde::{Deserialize, Serialize};
use tracing::{info, warn};
use uuid::Uuid;

use crate::log::checkpoint::{self, Offsets, write_atomically};
use crate::log::log::Log;
use crate::log::{LogError, LogSettings, RecoveryReport};

/// What a folder's name ends with while it is deleted.
pub(super) const DELETED_SUFFIX: &str = "-delete";
const HIGH_WATERMARKS: &str = "replication-offset-checkpoint";
const RECOVERY_POINTS: &str = "recovery-point-offset-checkpoint";
const LOG_STARTS: &str = "log-start-offset-checkpoint";
const CLEANED: &str = "cleaner-offset-checkpoint";
const META: &str = "meta.properties";
const CLEAN: &str = ".kafka_cleanshutdown";
const LOCK: &str = ".lock";

/// Says that the last process stopped cleanly.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct CleanShutdown {
    version: i32,
    broker_epoch: i64,
}

/// The folder of all logs of a node. Clones are the same folder; the last one gives it free.
#[derive(Clone, Debug)]
pub struct LogDirectory(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    path: PathBuf,
    _lock: Flock<File>,
    clean: Option<BrokerEpoch>,
    recovery_points: Offsets,
    log_starts: Offsets,
    cleaned: Offsets,
}

impl LogDirectory {
    /// Takes the folder for `node` of the cluster `cluster_id`; nobody else may have it meanwhile.
    ///
    /// # Errors
    /// The disk; another process has it; it belongs to another node or cluster.
    pub fn open(path: &Path, node: NodeId, cluster_id: &str) -> Result<Self, LogError> {
        fs::create_dir_all(path).map_err(LogError::disk(path))?;
        let lock_path = path.join(LOCK);
        let file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(false)
            .open(&lock_path)
            .map_err(LogError::disk(&lock_path))?;
        let lock = Flock::lock(file, FlockArg::LockExclusiveNonblock).map_err(|(_, errno)| {
            LogError::disk(&lock_path)(io::Error::other(format!(
                "another process uses this folder ({errno})"
            )))
        })?;
        check_meta(path, node, cluster_id)?;
        finish_deletions(path)?;
        let clean = take_clean_marker(path)?;
        info!(path = %path.display(), clean = clean.is_some(), "opens its logs");
        Ok(Self(Arc::new(Inner {
            path: path.to_owned(),
            _lock: lock,
            clean,
            recovery_points: checkpoint::read_offsets(&path.join(RECOVERY_POINTS))?,
            log_starts: checkpoint::read_offsets(&path.join(LOG_STARTS))?,
            cleaned: checkpoint::read_offsets(&path.join(CLEANED))?,
        })))
    }

    /// The epoch of the broker's last life, if that ended cleanly.
    pub fn previous_epoch(&self) -> Option<BrokerEpoch> {
        self.0.clean
    }

    /// Opens (or makes) the log of a partition.
    ///
    /// # Errors
    /// The disk; a folder that belongs to another topic of the same name.
    pub fn open_log(
        &self,
        topic: &str,
        id: PartitionId,
        settings: LogSettings,
    ) -> Result<(Log, RecoveryReport), LogError> {
        let dir = self.0.path.join(format!("{topic}-{}", id.index));
        check_topic(&dir, id)?;
        let key = (topic.to_owned(), id.index);
        let of = |offsets: &Offsets| offsets.get(&key).copied().unwrap_or(Offset::ZERO);
        let clean = self.0.clean.is_some();
        let (recovery_point, start) = (of(&self.0.recovery_points), of(&self.0.log_starts));
        let (mut log, report) = Log::open(&dir, settings, clean, recovery_point, start)?;
        log.set_cleaned_to(of(&self.0.cleaned));
        Ok((log, report))
    }

    /// High watermarks as the last life wrote them down.
    ///
    /// # Errors
    /// The disk.
    pub fn high_watermarks(&self) -> Result<Offsets, LogError> {
        checkpoint::read_offsets(&self.0.path.join(HIGH_WATERMARKS))
    }

    /// Writes high watermarks down.
    ///
    /// # Errors
    /// The disk.
    pub fn write_high_watermarks(&self, offsets: &Offsets) -> Result<(), LogError> {
        checkpoint::write_offsets(&self.0.path.join(HIGH_WATERMARKS), offsets)
    }

    /// Writes down up to where logs are on disk.
    ///
    /// # Errors
    /// The disk.
    pub fn write_recovery_points(&self, offsets: &Offsets) -> Result<(), LogError> {
        checkpoint::write_offsets(&self.0.path.join(RECOVERY_POINTS), offsets)
    }

    /// Writes down where logs begin.
    ///
    /// # Errors
    /// The disk.
    pub fn write_log_starts(&self, offsets: &Offsets) -> Result<(), LogError> {
        checkpoint::write_offsets(&self.0.path.join(LOG_STARTS), offsets)
    }

    /// Writes down up to where logs are compacted.
    ///
    /// # Errors
    /// The disk.
    pub fn write_cleaned(&self, offsets: &Offsets) -> Result<(), LogError> {
        checkpoint::write_offsets(&self.0.path.join(CLEANED), offsets)
    }

    /// All logs are closed: the next start may take them as they are.
    ///
    /// # Errors
    /// The disk.
    pub fn close(&self, epoch: Option<BrokerEpoch>) -> Result<(), LogError> {
        let marker =
            CleanShutdown { version: 0, broker_epoch: epoch.unwrap_or(BrokerEpoch::BYPASS).0 };
        let text = serde_json::to_string(&marker).unwrap_or_default();
        write_atomically(&self.0.path.join(CLEAN), &text)
    }
}

/// The folder's own word on which topic it belongs to. One of a topic that was deleted while
/// this node was away is replaced.
fn check_topic(dir: &Path, id: PartitionId) -> Result<(), LogError> {
    let path = dir.join("partition.metadata");
    let told = match fs::read_to_string(&path) {
        Ok(text) => text
            .lines()
            .find_map(|line| line.strip_prefix("topic_id: "))
            .and_then(topic_id_from_text),
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => return Err(LogError::disk(&path)(error)),
    };
    if let Some(told) = told
        && told != id.topic.0
    {
        warn!(log = %dir.display(), "belongs to a topic that is gone; is replaced");
        fs::remove_dir_all(dir).map_err(LogError::disk(dir))?;
    }
    if told != Some(id.topic.0) {
        fs::create_dir_all(dir).map_err(LogError::disk(dir))?;
        let text = format!("version: 0\ntopic_id: {}\n", topic_id_text(id.topic.0));
        write_atomically(&path, &text)?;
    }
    Ok(())
}

/// Kafka writes ids in URL-safe base64 without padding.
fn topic_id_text(id: Uuid) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let number = id.as_u128();
    (0..22)
        .map(|digit| {
            // 22 digits of 6 bits hold 132 bits, the last four of them padding.
            let six = match digit {
                21 => (number << 4) & 0x3f,
                _ => (number >> (122 - 6 * digit)) & 0x3f,
            };
            char::from(DIGITS[usize::try_from(six).unwrap_or(0)])
        })
        .collect()
}

fn topic_id_from_text(text: &str) -> Option<Uuid> {
    let mut number = 0_u128;
    let digits: Vec<u8> = text.trim().bytes().collect();
    if digits.len() != 22 {
        return None;
    }
    for (place, digit) in digits.iter().enumerate() {
        let six = u128::from(match digit {
            b'A'..=b'Z' => digit - b'A',
            b'a'..=b'z' => digit - b'a' + 26,
            b'0'..=b'9' => digit - b'0' + 52,
            b'-' => 62,
            b'_' => 63,
            _ => return None,
        });
        number = if place == 21 { number << 2 | six >> 4 } else { number << 6 | six };
    }
    Some(Uuid::from_u128(number))
}

fn take_clean_marker(path: &Path) -> Result<Option<BrokerEpoch>, LogError> {
    let marker = path.join(CLEAN);
    let text = match fs::read_to_string(&marker) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(LogError::disk(&marker)(error)),
    };
    // From now on a stop is unclean until the next close.
    fs::remove_file(&marker).map_err(LogError::disk(&marker))?;
    File::open(path).and_then(|folder| folder.sync_all()).map_err(LogError::disk(path))?;
    let read: Option<CleanShutdown> = serde_json::from_str(&text).ok();
    Ok(read.map(|marker| BrokerEpoch(marker.broker_epoch)))
}

fn check_meta(path: &Path, node: NodeId, cluster_id: &str) -> Result<(), LogError> {
    let file = path.join(META);
    let wanted = [("cluster.id", cluster_id.to_owned()), ("node.id", node.to_string())];
    match fs::read_to_string(&file) {
        Ok(text) => {
            let told =
                |name: &str| text.lines().find_map(|line| line.strip_prefix(&format!("{name}=")));
            for (name, value) in wanted {
                let found = told(name).unwrap_or_default();
                if found != value {
                    return Err(LogError::Damaged {
                        path: file,
                        position: 0,
                        reason: format!(
                            "this folder has {name} `{found}`, and the node is configured with \
                             `{value}`; give it another log.dirs, or put the setting right"
                        ),
                    });
                }
            }
            Ok(())
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let mut text = String::from("version=1\n");
            for (name, value) in wanted {
                let _ = writeln!(text, "{name}={value}");
            }
            let _ = writeln!(text, "directory.id={}", topic_id_text(Uuid::new_v4()));
            write_atomically(&file, &text)
        }
        Err(error) => Err(LogError::disk(&file)(error)),
    }
}

/// A deletion that a crash interrupted goes on.
fn finish_deletions(path: &Path) -> Result<(), LogError> {
    for entry in fs::read_dir(path).map_err(LogError::disk(path))? {
        let entry = entry.map_err(LogError::disk(path))?;
        if entry.file_name().to_string_lossy().ends_with(DELETED_SUFFIX) {
            fs::remove_dir_all(entry.path()).map_err(LogError::disk(entry.path()))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use replication::types::TopicId;

    use super::*;

    #[test]
    fn ids_are_written_as_kafka_writes_them() {
        let id = Uuid::from_u128(0x1234_5678_9abc_def0_1234_5678_9abc_def0);
        let text = topic_id_text(id);
        assert_eq!(text.len(), 22);
        assert_eq!(topic_id_from_text(&text), Some(id));
        assert_eq!(topic_id_text(Uuid::from_u128(0)), "A".repeat(22));
    }

    #[test]
    fn a_folder_has_one_owner_at_a_time_and_one_node_for_ever() {
        let dir = tempfile::tempdir().unwrap();
        let open = |node, cluster: &str| LogDirectory::open(dir.path(), NodeId(node), cluster);
        let held = open(1, "c").unwrap();
        assert!(open(1, "c").unwrap_err().to_string().contains("another process"));
        drop(held);
        assert!(open(2, "c").unwrap_err().to_string().contains("node.id"));
        assert!(open(1, "d").unwrap_err().to_string().contains("cluster.id"));
        assert!(open(1, "c").is_ok());
    }

    #[test]
    fn a_clean_stop_is_told_once() {
        let dir = tempfile::tempdir().unwrap();
        let open = || LogDirectory::open(dir.path(), NodeId(1), "c").unwrap();
        let first = open();
        assert_eq!(first.previous_epoch(), None);
        first.close(Some(BrokerEpoch(7))).unwrap();
        drop(first);
        assert_eq!(open().previous_epoch(), Some(BrokerEpoch(7)));
        assert_eq!(open().previous_epoch(), None);
    }

    #[test]
    fn a_log_of_a_topic_that_is_gone_is_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let directory = LogDirectory::open(dir.path(), NodeId(1), "c").unwrap();
        let id = |topic| PartitionId { topic: TopicId(Uuid::from_u128(topic)), index: 0 };
        let (mut log, _) = directory.open_log("t", id(1), LogSettings::default()).unwrap();
        log.append(&crate::log::batch::tests::batch(0, 0, 3)).unwrap();
        drop(log);
        let (log, _) = directory.open_log("t", id(1), LogSettings::default()).unwrap();
        assert_eq!(log.end(), Offset(3));
        let (log, _) = directory.open_log("t", id(2), LogSettings::default()).unwrap();
        assert_eq!(log.end(), Offset(0));
    }
}
