//! From the bytes of a history to its operations.
//!
//! Whole lines are cut into chunks, chunks are parsed side by side, and [`assemble`] puts them
//! together in order and finds what one line alone cannot show: gaps, strays, reused processes.

mod assemble;
mod chunk;
mod fast;
mod line;
mod observed;
mod processes;
mod records;
#[cfg(test)]
mod tests;

use std::io::{self, BufReader, Read};
use std::thread;

use memchr::memrchr;

use crate::error::ReadError;
use crate::operations::History;
use assemble::Assembly;
use chunk::Chunk;
pub use line::LineError;

/// How much is parsed in one go. Large enough that threads cost nothing, small enough to fit in
/// a cache and to keep memory low.
const CHUNK_BYTES: usize = 1 << 20;
/// How many chunks are parsed side by side.
const SIDE_BY_SIDE: usize = 2;
/// How a zstd frame begins.
const ZSTD_MAGIC: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];

impl History {
    /// Reads a history, compressed by zstd or not. A last line that was cut is left out, with a
    /// warning.
    ///
    /// # Errors
    /// The bytes do not come, or a line is not what the format says.
    pub fn read(mut input: impl Read) -> Result<Self, ReadError> {
        let mut head = Vec::with_capacity(ZSTD_MAGIC.len());
        (&mut input).take(ZSTD_MAGIC.len() as u64).read_to_end(&mut head)?;
        let packed = head == ZSTD_MAGIC;
        let input = head.as_slice().chain(input);
        if packed {
            read_lines(zstd::stream::read::Decoder::with_buffer(BufReader::new(input))?)
        } else {
            read_lines(input)
        }
    }
}

fn read_lines(input: impl Read) -> Result<History, ReadError> {
    let mut cutter = Cutter::new(input);
    let mut assembly = Assembly::default();
    let mut texts = cutter.some()?;
    let mut parsed: Vec<(Chunk, bool)> = Vec::new();
    while !texts.is_empty() || !parsed.is_empty() {
        // While some chunks are parsed, those before them are assembled and those behind them
        // are read.
        let (now, next) = thread::scope(|scope| {
            let threads: Vec<_> =
                texts.iter().map(|text| scope.spawn(|| Chunk::parse(text))).collect();
            for (chunk, ended) in &parsed {
                assembly.add(chunk, *ended)?;
            }
            let next = cutter.some()?;
            let mut now = Vec::with_capacity(threads.len());
            for (thread, text) in threads.into_iter().zip(&texts) {
                let panicked = |_| io::Error::other("a thread that parsed a part of it panicked");
                now.push((thread.join().map_err(panicked)?, text.ends_with(b"\n")));
            }
            Ok::<_, ReadError>((now, next))
        })?;
        parsed = now;
        cutter.give_back(std::mem::replace(&mut texts, next));
    }
    Ok(assembly.finish())
}

/// Cuts what it reads into chunks of whole lines. Only the last may lack its line end.
struct Cutter<R> {
    input: R,
    /// The begin of a line whose end has not been read.
    begun: Vec<u8>,
    spare: Vec<Vec<u8>>,
    ended: bool,
}

impl<R: Read> Cutter<R> {
    fn new(input: R) -> Self {
        Self { input, begun: Vec::new(), spare: Vec::new(), ended: false }
    }

    /// As many chunks as are parsed side by side; fewer at the end.
    fn some(&mut self) -> io::Result<Vec<Vec<u8>>> {
        let mut texts = Vec::with_capacity(SIDE_BY_SIDE);
        while texts.len() < SIDE_BY_SIDE
            && let Some(text) = self.next()?
        {
            texts.push(text);
        }
        Ok(texts)
    }

    fn next(&mut self) -> io::Result<Option<Vec<u8>>> {
        if self.ended {
            return Ok(None);
        }
        let mut text = self.spare.pop().unwrap_or_default();
        text.clear();
        text.append(&mut self.begun);
        loop {
            let before = text.len();
            let read = (&mut self.input).take(CHUNK_BYTES as u64).read_to_end(&mut text)?;
            if read == 0 {
                self.ended = true;
                return Ok((!text.is_empty()).then_some(text));
            }
            // A line longer than a chunk is read on until it ends.
            if let Some(end) = memrchr(b'\n', &text[before..]) {
                self.begun.extend_from_slice(&text[before + end + 1..]);
                text.truncate(before + end + 1);
                return Ok(Some(text));
            }
        }
    }

    /// Takes back buffers that are no longer needed.
    fn give_back(&mut self, texts: Vec<Vec<u8>>) {
        self.spare.extend(texts);
    }
}
