//! The replicas of a stopped node, read from its disk: segments, checkpoints, as every system here keeps
//! them. Batches are read one after the other; no log is ever in memory as a whole.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, BufReader, Read};
use std::path::{Path, PathBuf};

use history::{BatchMark, DiskValue, Key};

use crate::batches::{HEADER_BYTES, Numbers, read_header, read_numbers};
use crate::node::NodeSpec;

pub(crate) const EPOCHS: &str = "leader-epoch-checkpoint";
pub(crate) const HIGH_WATERMARKS: &str = "replication-offset-checkpoint";
const LOG_STARTS: &str = "log-start-offset-checkpoint";
/// What a checksum covers begins here.
const CHECKED_FROM: usize = 21;
const BUFFER_BYTES: usize = 256 * 1024;

/// A replica's log, batch by batch.
pub struct ReplicaLog {
    /// What is known of it beside its batches; complete once they are read.
    pub replica: DiskValue,
    segments: std::vec::IntoIter<(i64, PathBuf)>,
    reader: Option<Segment>,
    /// The last number of each producer's epoch.
    last_numbers: BTreeMap<(i64, i16), i32>,
}

struct Segment {
    file: BufReader<File>,
    left: u64,
}

impl ReplicaLog {
    /// The replica of `key` on the disk of `node`; none where it has none.
    ///
    /// # Errors
    /// The disk.
    pub fn open(node: &NodeSpec, key: &Key) -> io::Result<Option<Self>> {
        let data = node.data_dir();
        let dir = data.join(key.as_str());
        if !dir.is_dir() {
            return Ok(None);
        }
        let mut segments = segments(&dir)?;
        let first = segments.first().map_or(0, |(base, _)| *base);
        let log_start = offset_of(&data.join(LOG_STARTS), key)?.unwrap_or(first).max(first);
        // Whole segments below the log's start are on their way out.
        while segments.get(1).is_some_and(|(next, _)| *next <= log_start) {
            segments.remove(0);
        }
        let replica = DiskValue {
            node: node.name.to_string(),
            key: key.to_string(),
            log_start,
            log_end: segments.last().map_or(log_start, |(base, _)| (*base).max(log_start)),
            high_watermark: offset_of(&data.join(HIGH_WATERMARKS), key)?,
            epochs: pairs(&dir.join(EPOCHS))?,
            torn_bytes: 0,
            damaged: Vec::new(),
            misnumbered: Vec::new(),
        };
        let last_numbers = BTreeMap::new();
        Ok(Some(Self { replica, segments: segments.into_iter(), reader: None, last_numbers }))
    }

    /// The next batch. None: the log ends here, or what follows is torn.
    ///
    /// # Errors
    /// The disk.
    pub fn next_batch(&mut self) -> io::Result<Option<BatchMark>> {
        loop {
            let Some(segment) = &mut self.reader else {
                let Some((_, path)) = self.segments.next() else { return Ok(None) };
                let file = File::open(&path)?;
                let left = file.metadata()?.len();
                let file = BufReader::with_capacity(BUFFER_BYTES, file);
                self.reader = Some(Segment { file, left });
                continue;
            };
            let Some(batch) = segment.next()? else {
                let torn = segment.left;
                self.reader = None;
                if torn > 0 {
                    self.replica.torn_bytes = torn;
                    self.segments = Vec::new().into_iter();
                }
                continue;
            };
            if batch.mark.last < self.replica.log_start {
                continue;
            }
            self.replica.log_end = batch.mark.last + 1;
            if !batch.sound {
                self.replica.damaged.push(batch.mark.first);
            }
            if let Some(numbers) = batch.numbers {
                let last = self.last_numbers.insert(numbers.producer, numbers.last);
                let next = last.map(|last| last.checked_add(1).unwrap_or(0));
                if next.is_some_and(|next| next != numbers.first) {
                    self.replica.misnumbered.push(batch.mark.first);
                }
            }
            return Ok(Some(batch.mark));
        }
    }
}

struct Batch {
    mark: BatchMark,
    sound: bool,
    numbers: Option<Numbers>,
}

impl Segment {
    /// The next whole batch.
    fn next(&mut self) -> io::Result<Option<Batch>> {
        let mut header = [0; HEADER_BYTES];
        if self.left < HEADER_BYTES as u64 {
            return Ok(None);
        }
        self.file.read_exact(&mut header)?;
        let Some((mark, size)) = read_header(&header).filter(|(_, size)| *size as u64 <= self.left)
        else {
            return Ok(None);
        };
        let mut body = vec![0; size - HEADER_BYTES];
        self.file.read_exact(&mut body)?;
        self.left -= size as u64;
        let checked = header.get(CHECKED_FROM..).unwrap_or_default();
        let crc = crc32c::crc32c_append(crc32c::crc32c(checked), &body);
        Ok(Some(Batch { mark, sound: crc == mark.crc, numbers: read_numbers(&header) }))
    }
}

/// First offsets and paths of a log's segments, in order.
pub(crate) fn segments(dir: &Path) -> io::Result<Vec<(i64, PathBuf)>> {
    let mut segments = Vec::new();
    for entry in fs::read_dir(dir)? {
        let path = entry?.path();
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let base = name.strip_suffix(".log").and_then(|digits| digits.parse().ok());
        segments.extend(base.map(|base| (base, path.clone())));
    }
    segments.sort_unstable();
    Ok(segments)
}

/// The lines of a checkpoint behind its version and their number; none where there is no file.
fn lines(path: &Path) -> io::Result<Vec<String>> {
    match fs::read_to_string(path) {
        Ok(text) => Ok(text.lines().skip(2).map(str::to_owned).collect()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}

/// Lines of two numbers.
fn pairs(path: &Path) -> io::Result<Vec<(i32, i64)>> {
    let read = |line: &String| {
        let (a, b) = line.split_once(' ')?;
        Some((a.parse().ok()?, b.parse().ok()?))
    };
    Ok(lines(path)?.iter().filter_map(read).collect())
}

/// The offset of `key` among lines of topic, partition and offset.
fn offset_of(path: &Path, key: &Key) -> io::Result<Option<i64>> {
    let read = |line: &String| {
        let mut words = line.split(' ');
        let (topic, partition) = (words.next()?, words.next()?.parse().ok()?);
        (Key::new(topic, partition) == *key).then(|| words.next()?.parse().ok())?
    };
    Ok(lines(path)?.iter().find_map(read))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batches::tests::{batch, mark};

    /// A batch with its right checksum.
    fn sound(first: i64, last: i64, epoch: i32) -> (BatchMark, Vec<u8>) {
        let bytes = batch(mark(first, last, epoch, 0), 9);
        let crc = crc32c::crc32c(&bytes[CHECKED_FROM..]);
        let mark = mark(first, last, epoch, crc);
        (mark, batch(mark, 9))
    }

    fn all(log: &mut ReplicaLog) -> Vec<BatchMark> {
        std::iter::from_fn(|| log.next_batch().unwrap()).collect()
    }

    #[test]
    fn batches_are_read_over_segments_up_to_a_torn_one() {
        let dir = tempfile::tempdir().unwrap();
        let node = NodeSpec::sample(1, dir.path());
        let log_dir = node.data_dir().join("t-0");
        fs::create_dir_all(&log_dir).unwrap();
        let (a, a_bytes) = sound(3, 4, 1);
        let (b, b_bytes) = sound(5, 5, 2);
        let spoilt = batch(mark(6, 7, 2, 99), 9);
        fs::write(log_dir.join("00000000000000000003.log"), &a_bytes).unwrap();
        let second = [&b_bytes[..], &spoilt, &a_bytes[..20]].concat();
        fs::write(log_dir.join("00000000000000000005.log"), second).unwrap();
        fs::write(log_dir.join(EPOCHS), "0\n2\n1 3\n2 5\n").unwrap();
        let marks = "0\n2\nt 1 9\nt 0 6\n";
        fs::write(node.data_dir().join(HIGH_WATERMARKS), marks).unwrap();
        let mut log = ReplicaLog::open(&node, &Key::from("t-0")).unwrap().unwrap();
        assert_eq!(all(&mut log), [a, b, mark(6, 7, 2, 99)]);
        let replica = log.replica;
        assert_eq!((replica.log_start, replica.log_end), (3, 8));
        assert_eq!((replica.high_watermark, replica.torn_bytes), (Some(6), 20));
        assert_eq!((replica.epochs, replica.damaged), (vec![(1, 3), (2, 5)], vec![6]));
        assert!(ReplicaLog::open(&node, &Key::from("t-1")).unwrap().is_none());
    }

    #[test]
    fn what_lies_below_the_log_start_does_not_count() {
        let dir = tempfile::tempdir().unwrap();
        let node = NodeSpec::sample(1, dir.path());
        let log_dir = node.data_dir().join("t-0");
        fs::create_dir_all(&log_dir).unwrap();
        let (_, a_bytes) = sound(0, 4, 1);
        let (b, b_bytes) = sound(5, 5, 2);
        let bytes = [a_bytes, b_bytes].concat();
        fs::write(log_dir.join("00000000000000000000.log"), bytes).unwrap();
        fs::write(node.data_dir().join(LOG_STARTS), "0\n1\nt 0 5\n").unwrap();
        let mut log = ReplicaLog::open(&node, &Key::from("t-0")).unwrap().unwrap();
        assert_eq!(all(&mut log), [b]);
        assert_eq!((log.replica.log_start, log.replica.log_end), (5, 6));
        assert_eq!(log.replica.high_watermark, None);
    }
}
