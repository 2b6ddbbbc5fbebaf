//! Small files that say where things stand, in Kafka's formats, written atomically: to another
//! name, to the disk, renamed, and the folder to the disk.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::Path;

use replication::epochs::{EpochStart, LeaderEpochs};
use replication::types::{LeaderEpoch, Offset};
use tracing::warn;

use crate::log::LogError;

const VERSION: &str = "0";
const EPOCHS: &str = "leader-epoch-checkpoint";

/// Offsets by topic and partition.
pub type Offsets = BTreeMap<(String, i32), Offset>;

/// Writes `text` to `path`: either all of it is there afterwards, or the file is as it was.
///
/// # Errors
/// The disk.
pub fn write_atomically(path: &Path, text: &str) -> Result<(), LogError> {
    let mut name = path.file_name().unwrap_or_default().to_os_string();
    name.push(".tmp");
    let other = path.with_file_name(name);
    let written = || -> io::Result<()> {
        let mut file = File::create(&other)?;
        file.write_all(text.as_bytes())?;
        file.sync_data()?;
        fs::rename(&other, path)?;
        if let Some(folder) = path.parent() {
            File::open(folder)?.sync_all()?;
        }
        Ok(())
    };
    written().map_err(LogError::disk(path))
}

/// Version, number of entries, entries.
fn text(entries: &[String]) -> String {
    let mut text = format!("{VERSION}\n{}\n", entries.len());
    for entry in entries {
        let _ = writeln!(text, "{entry}");
    }
    text
}

/// The entries of a checkpoint; none where there is no file.
fn read(path: &Path) -> Result<Vec<String>, LogError> {
    let text = match fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(LogError::disk(path)(error)),
    };
    let damaged = |reason: String| LogError::Damaged { path: path.to_owned(), position: 0, reason };
    let mut lines = text.lines();
    if lines.next() != Some(VERSION) {
        return Err(damaged(format!("it does not begin with version {VERSION}")));
    }
    let count: usize = lines
        .next()
        .and_then(|line| line.trim().parse().ok())
        .ok_or_else(|| damaged("its second line is not a number of entries".to_owned()))?;
    let entries: Vec<String> = lines.map(str::to_owned).filter(|line| !line.is_empty()).collect();
    if entries.len() != count {
        return Err(damaged(format!("{} of {count} entries", entries.len())));
    }
    Ok(entries)
}

/// Writes the epoch vector of the log in `dir`.
///
/// # Errors
/// The disk.
pub fn write_epochs(dir: &Path, epochs: &LeaderEpochs) -> Result<(), LogError> {
    let entries: Vec<String> =
        epochs.entries().iter().map(|entry| format!("{} {}", entry.epoch, entry.start)).collect();
    write_atomically(&dir.join(EPOCHS), &text(&entries))
}

/// The epoch vector of the log in `dir`. A damaged file is told and counts as none: the vector is
/// made anew from the batches.
///
/// # Errors
/// The disk.
pub fn read_epochs(dir: &Path) -> Result<Vec<EpochStart>, LogError> {
    let path = dir.join(EPOCHS);
    let entries = match read(&path) {
        Ok(entries) => entries,
        Err(error @ LogError::Damaged { .. }) => {
            warn!(%error, "the epoch vector is made anew from the log");
            return Ok(Vec::new());
        }
        Err(error) => return Err(error),
    };
    Ok(entries
        .iter()
        .filter_map(|entry| {
            let (epoch, start) = entry.split_once(' ')?;
            let epoch = LeaderEpoch(epoch.parse().ok()?);
            Some(EpochStart { epoch, start: Offset(start.parse().ok()?) })
        })
        .collect())
}

/// Writes offsets, one line a partition.
///
/// # Errors
/// The disk.
pub fn write_offsets(path: &Path, offsets: &Offsets) -> Result<(), LogError> {
    let entries: Vec<String> = offsets
        .iter()
        .map(|((topic, partition), offset)| format!("{topic} {partition} {offset}"))
        .collect();
    write_atomically(path, &text(&entries))
}

/// Offsets by partition. A damaged file is told and counts as none: all of them can be found
/// again, later.
///
/// # Errors
/// The disk.
pub fn read_offsets(path: &Path) -> Result<Offsets, LogError> {
    let entries = match read(path) {
        Ok(entries) => entries,
        Err(error @ LogError::Damaged { .. }) => {
            warn!(%error, "the checkpoint is not used");
            return Ok(Offsets::new());
        }
        Err(error) => return Err(error),
    };
    Ok(entries
        .iter()
        .filter_map(|entry| {
            let mut words = entry.split(' ');
            let topic = words.next()?.to_owned();
            let partition = words.next()?.parse().ok()?;
            let offset = Offset(words.next()?.parse().ok()?);
            Some(((topic, partition), offset))
        })
        .collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_have_kafkas_format_and_come_back() {
        let dir = tempfile::tempdir().unwrap();
        let epochs = LeaderEpochs::from_entries([
            EpochStart { epoch: LeaderEpoch(0), start: Offset(0) },
            EpochStart { epoch: LeaderEpoch(3), start: Offset(17) },
        ]);
        write_epochs(dir.path(), &epochs).unwrap();
        let text = fs::read_to_string(dir.path().join(EPOCHS)).unwrap();
        assert_eq!(text, "0\n2\n0 0\n3 17\n");
        assert_eq!(read_epochs(dir.path()).unwrap(), epochs.entries());
        let path = dir.path().join("replication-offset-checkpoint");
        let offsets = Offsets::from([(("orders".to_owned(), 3), Offset(9))]);
        write_offsets(&path, &offsets).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "0\n1\norders 3 9\n");
        assert_eq!(read_offsets(&path).unwrap(), offsets);
    }

    #[test]
    fn a_damaged_or_absent_file_is_no_entry() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(read_epochs(dir.path()).unwrap(), []);
        fs::write(dir.path().join(EPOCHS), "0\n5\n0 0\n").unwrap();
        assert_eq!(read_epochs(dir.path()).unwrap(), []);
    }
}
