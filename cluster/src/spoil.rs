//! What a stopped node's disk may do to its replicas: bytes that are gone or changed, checkpoints that are
//! empty or old.

use std::fs::{self, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use history::Key;
use serde_json::{Value, json};

use crate::node::NodeSpec;
use crate::on_disk::{EPOCHS, HIGH_WATERMARKS, segments};

/// What is done to a replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spoilage {
    /// The last so many bytes of its log are gone.
    CutTail(u64),
    /// The last bit of its log is another.
    FlipBit,
    /// Its epoch vector is empty.
    EmptyEpochs,
    /// Its high watermark is written down as this.
    SetHighWatermark(i64),
}

impl Spoilage {
    /// Does it to the replica of `key` on the disk of `node`, which must not run; what was there before.
    ///
    /// # Errors
    /// The disk, or there is nothing to spoil.
    pub fn apply(self, node: &NodeSpec, key: &Key) -> io::Result<Value> {
        let dir = node.data_dir().join(key.as_str());
        match self {
            Self::CutTail(bytes) => {
                let (path, length) = tail(&dir)?;
                let left = length.checked_sub(bytes).ok_or_else(|| {
                    io::Error::other(format!("{} has {length} bytes", path.display()))
                })?;
                OpenOptions::new().write(true).open(&path)?.set_len(left)?;
                Ok(json!({ "bytes_before": length, "bytes": left }))
            }
            Self::FlipBit => {
                let (path, length) = tail(&dir)?;
                let at = length.checked_sub(1).ok_or_else(|| io::Error::other("an empty log"))?;
                let file = OpenOptions::new().read(true).write(true).open(&path)?;
                let mut byte = [0];
                file.read_exact_at(&mut byte, at)?;
                file.write_all_at(&[byte[0] ^ 1], at)?;
                Ok(json!({ "position": at, "byte_before": byte[0], "byte": byte[0] ^ 1 }))
            }
            Self::EmptyEpochs => {
                let path = dir.join(EPOCHS);
                let before = fs::read_to_string(&path)?;
                fs::write(&path, "0\n0\n")?;
                Ok(json!({ "before": before }))
            }
            Self::SetHighWatermark(offset) => set_high_watermark(node, key, offset),
        }
    }
}

/// The last segment that holds anything, and its length.
fn tail(dir: &Path) -> io::Result<(PathBuf, u64)> {
    for (_, path) in segments(dir)?.into_iter().rev() {
        let length = fs::metadata(&path)?.len();
        if length > 0 {
            return Ok((path, length));
        }
    }
    Err(io::Error::other(format!("{} holds no records", dir.display())))
}

fn set_high_watermark(node: &NodeSpec, key: &Key, offset: i64) -> io::Result<Value> {
    let path = node.data_dir().join(HIGH_WATERMARKS);
    let text = fs::read_to_string(&path)?;
    let (topic, partition) = key.split().ok_or_else(|| io::Error::other("no partition"))?;
    let of_key = format!("{topic} {partition} ");
    let mut before = None;
    let lines = text.lines().map(|line| match line.strip_prefix(&of_key) {
        Some(old) => {
            before = Some(old.to_owned());
            format!("{of_key}{offset}\n")
        }
        None => format!("{line}\n"),
    });
    let new: String = lines.collect();
    let before =
        before.ok_or_else(|| io::Error::other(format!("{} lacks {key}", path.display())))?;
    fs::write(&path, new)?;
    Ok(json!({ "before": before, "now": offset }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_changes_what_it_says_and_nothing_else() {
        let dir = tempfile::tempdir().unwrap();
        let node = NodeSpec::sample(1, dir.path());
        let key = Key::from("t-0");
        let log_dir = node.data_dir().join("t-0");
        fs::create_dir_all(&log_dir).unwrap();
        let log = log_dir.join("00000000000000000000.log");
        fs::write(&log, b"abcd").unwrap();
        fs::write(log_dir.join("00000000000000000004.log"), b"").unwrap();
        Spoilage::FlipBit.apply(&node, &key).unwrap();
        assert_eq!(fs::read(&log).unwrap(), b"abce");
        Spoilage::CutTail(3).apply(&node, &key).unwrap();
        assert_eq!(fs::read(&log).unwrap(), b"a");
        assert!(Spoilage::CutTail(3).apply(&node, &key).is_err());
        assert!(Spoilage::EmptyEpochs.apply(&node, &key).is_err(), "there are none");
        fs::write(log_dir.join(EPOCHS), "0\n1\n0 0\n").unwrap();
        Spoilage::EmptyEpochs.apply(&node, &key).unwrap();
        assert_eq!(fs::read_to_string(log_dir.join(EPOCHS)).unwrap(), "0\n0\n");
        let marks = node.data_dir().join(HIGH_WATERMARKS);
        fs::write(&marks, "0\n2\nt 0 7\nt 1 8\n").unwrap();
        Spoilage::SetHighWatermark(3).apply(&node, &key).unwrap();
        assert_eq!(fs::read_to_string(&marks).unwrap(), "0\n2\nt 0 3\nt 1 8\n");
        assert!(Spoilage::SetHighWatermark(3).apply(&node, &Key::from("u-0")).is_err());
    }
}
