//! The lines of the metadata log's file. A line is an entry as JSON, so that a person can read it,
//! behind what tells whether it is whole:
//!
//! ```text
//! CRC32C WRITE LENGTH JSON
//! ```
//!
//! The checksum, in hex, is of all that follows the space behind it. `WRITE` is where in the file
//! the write began that the line belongs to, `LENGTH` how many bytes the JSON has, both decimal.
//!
//! Only the last write can be torn, since each is synced before the next one begins: what is bad in
//! it and looks torn is cut off, and nobody has counted on it. Anything else that is bad was good
//! once and may have been acknowledged, so it is an error.

use super::types::RaftEntry;

/// A disk writes a sector whole or not at all.
const SECTOR: usize = 512;

/// The line of `json`, written by the write that begins at byte `write` of the file.
pub(super) fn line(write: u64, json: &str) -> String {
    let sealed = format!("{write} {} {json}", json.len());
    format!("{:08x} {sealed}\n", crc32c::crc32c(sealed.as_bytes()))
}

/// An entry, and where its line begins.
type Placed = (u64, RaftEntry);

/// What a file holds.
#[derive(Debug, Default)]
pub(super) struct Lines {
    /// The whole lines.
    pub(super) entries: Vec<Placed>,
    /// Where the last of them ends. What lies behind is torn.
    pub(super) end: usize,
}

/// Reads a file.
///
/// # Errors
/// The byte at which a line begins that is damaged, and not just torn.
pub(super) fn read(bytes: &[u8]) -> Result<Lines, usize> {
    let mut lines = Lines::default();
    while lines.end < bytes.len() {
        let at = lines.end;
        let Some((_, entry, length)) = whole(&bytes[at..]) else {
            if is_of_an_earlier_write(bytes, at) || !looks_torn(bytes, at) {
                return Err(at);
            }
            break;
        };
        lines.entries.push((at as u64, entry));
        lines.end += length;
    }
    Ok(lines)
}

/// The write, the entry and the length of the line at the beginning of `bytes`, if it is whole.
fn whole(bytes: &[u8]) -> Option<(usize, RaftEntry, usize)> {
    let length = bytes.iter().position(|byte| *byte == b'\n')?;
    let text = std::str::from_utf8(&bytes[..length]).ok()?;
    let (crc, sealed) = text.split_once(' ')?;
    if u32::from_str_radix(crc, 16).ok()? != crc32c::crc32c(sealed.as_bytes()) {
        return None;
    }
    let (write, rest) = sealed.split_once(' ')?;
    let (_, json) = rest.split_once(' ')?;
    Some((write.parse().ok()?, serde_json::from_str(json).ok()?, length + 1))
}

/// Does a whole line of a later write follow the bad one at `at`? Then its own was synced.
fn is_of_an_earlier_write(bytes: &[u8], at: usize) -> bool {
    let mut rest = at;
    while let Some(length) = bytes[rest..].iter().position(|byte| *byte == b'\n') {
        rest += length + 1;
        if whole(&bytes[rest..]).is_some_and(|(write, ..)| write > at) {
            return true;
        }
    }
    false
}

/// A write that ended early is too short; one of which sectors are missing has zeros there, which no
/// line has.
fn looks_torn(bytes: &[u8], at: usize) -> bool {
    let is_short = bytes.last() != Some(&b'\n')
        && declared(&bytes[at..]).is_none_or(|length| bytes.len() - at < length);
    let mut sector = at;
    let mut is_missing = false;
    while sector < bytes.len() {
        let next = (sector / SECTOR + 1) * SECTOR;
        let part = &bytes[sector..next.min(bytes.len())];
        is_missing |= part.iter().all(|byte| *byte == 0);
        sector = next;
    }
    is_short || is_missing
}

/// How long a line says it is, from what lies before its JSON.
fn declared(bytes: &[u8]) -> Option<usize> {
    let mut fields = bytes.splitn(4, |byte| *byte == b' ');
    let before = fields.by_ref().take(3).map(|field| field.len() + 1);
    let head: Vec<usize> = before.collect();
    fields.next()?;
    let length = bytes.splitn(4, |byte| *byte == b' ').nth(2)?;
    let length: usize = std::str::from_utf8(length).ok()?.parse().ok()?;
    Some(head.iter().sum::<usize>() + length + 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn entry(index: u64) -> RaftEntry {
        let id = openraft::LogId::new(openraft::CommittedLeaderId::new(1, 1), index);
        openraft::Entry { log_id: id, payload: openraft::EntryPayload::Blank }
    }

    /// A file of writes of so many entries each, and where each write begins.
    fn file(writes: &[usize]) -> (Vec<u8>, Vec<usize>) {
        let mut bytes = Vec::new();
        let mut begins = Vec::new();
        let mut index = 0;
        for count in writes {
            let begin = bytes.len();
            begins.push(begin);
            for _ in 0..*count {
                let json = serde_json::to_string(&entry(index)).unwrap();
                bytes.extend_from_slice(line(begin as u64, &json).as_bytes());
                index += 1;
            }
        }
        (bytes, begins)
    }

    fn indexes(lines: &Lines) -> Vec<u64> {
        lines.entries.iter().map(|(_, entry)| entry.log_id.index).collect()
    }

    #[test]
    fn what_is_written_is_read() {
        let (bytes, _) = file(&[1, 3, 2]);
        let lines = read(&bytes).unwrap();
        assert_eq!(indexes(&lines), [0, 1, 2, 3, 4, 5]);
        assert_eq!(lines.end, bytes.len());
    }

    #[test]
    fn a_flipped_bit_in_the_last_line_is_damage_and_not_a_torn_write() {
        let (bytes, begins) = file(&[2, 1]);
        for at in begins[1]..bytes.len() {
            for bit in 0..8 {
                let mut flipped = bytes.clone();
                flipped[at] ^= 1 << bit;
                let read = read(&flipped);
                let lost = matches!(&read, Ok(lines) if lines.entries.len() < 3);
                assert!(!lost, "byte {at}, bit {bit}: {read:?}");
            }
        }
    }

    #[test]
    fn missing_sectors_of_the_last_write_are_torn_even_before_whole_lines() {
        let (mut bytes, begins) = file(&[1, 40]);
        let last = begins[1];
        assert!(bytes.len() > 3 * SECTOR);
        bytes[SECTOR..2 * SECTOR].fill(0);
        let lines = read(&bytes).unwrap();
        assert!(lines.end <= SECTOR && lines.end >= last);
    }

    #[test]
    fn missing_sectors_of_an_earlier_write_are_damage() {
        let (mut bytes, _) = file(&[40, 1]);
        bytes[SECTOR..2 * SECTOR].fill(0);
        assert!(read(&bytes).is_err());
    }

    proptest! {
        /// Cut anywhere, what the cut left whole is read, and the rest is torn.
        #[test]
        fn a_cut_within_the_last_write_leaves_the_lines_before_it(
            writes in prop::collection::vec(1_usize..4, 1..5),
            cut in any::<prop::sample::Index>(),
        ) {
            let (bytes, begins) = file(&writes);
            let last = *begins.last().unwrap();
            let cut = last + cut.index(bytes.len() - last);
            let lines = read(&bytes[..cut]).unwrap();
            let whole = bytes[..cut].split(|byte| *byte == b'\n').count() - 1;
            prop_assert_eq!(lines.entries.len(), whole);
            prop_assert!(lines.end >= last.min(cut));
        }

        /// One flipped bit anywhere is seen; no line before it is lost, and none behind it unseen.
        #[test]
        fn a_flipped_bit_is_never_taken_for_a_torn_write(
            writes in prop::collection::vec(1_usize..4, 1..5),
            at in any::<prop::sample::Index>(),
            bit in 0_u32..8,
        ) {
            let (mut bytes, _) = file(&writes);
            let all = writes.iter().sum::<usize>();
            let at = at.index(bytes.len());
            bytes[at] ^= 1_u8 << bit;
            if let Ok(lines) = read(&bytes) {
                prop_assert_eq!(lines.entries.len(), all);
            }
        }

        #[test]
        fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..2000)) {
            if let Ok(lines) = read(&bytes) {
                prop_assert!(lines.end <= bytes.len());
            }
        }
    }
}
