//! The shapes of lines that make up almost all of a history, read straight into columns.
//!
//! Anything else — an unknown field, an escape, a sign, a fraction, fields in an order in which
//! a value comes before its `f` — is left to [`super::line`]: this gives `None` then, and what
//! it has added to the columns is to be dropped.

use super::chunk::{Chunk, RawEvent, RawOp, RawValue, Span};
use crate::event::{Kind, Process};
use crate::names::NameId;
use crate::operations::Sent;

/// Reads one line, without its line end.
pub(crate) fn parse(line: &[u8], chunk: &mut Chunk) -> Option<RawEvent> {
    let mut cursor = Cursor { bytes: line, at: 0 };
    let mut fields = Fields::default();
    cursor.expect(b'{')?;
    loop {
        let name = cursor.string()?;
        cursor.expect(b':')?;
        fields.read(name, &mut cursor, chunk)?;
        match cursor.next()? {
            b',' => {}
            b'}' => break,
            _ => return None,
        }
    }
    cursor.skip_space();
    if cursor.at < line.len() {
        return None;
    }
    fields.finish(chunk)
}

/// What a line's fields were found to be; each may come once.
#[derive(Default)]
struct Fields {
    index: Option<u64>,
    time_ns: Option<u64>,
    scheduled_ns: Option<u64>,
    process: Option<u64>,
    kind: Option<Kind>,
    function: Option<Known>,
    value: Option<RawValue>,
    seek_to_beginning: Option<bool>,
    error: Option<NameId>,
    rebalanced: Option<Span>,
}

/// The operations of clients.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Known {
    Send,
    Poll,
    Txn,
    Assign,
    Subscribe,
    Crash,
}

impl Known {
    const fn name(self) -> &'static str {
        match self {
            Self::Send => "send",
            Self::Poll => "poll",
            Self::Txn => "txn",
            Self::Assign => "assign",
            Self::Subscribe => "subscribe",
            Self::Crash => "crash",
        }
    }
}

/// Sets a field that was not set before.
fn once<T>(field: &mut Option<T>, value: T) -> Option<()> {
    field.replace(value).is_none().then_some(())
}

impl Fields {
    fn read(&mut self, name: &[u8], cursor: &mut Cursor<'_>, chunk: &mut Chunk) -> Option<()> {
        match name {
            b"index" => once(&mut self.index, cursor.natural()?),
            b"time" => once(&mut self.time_ns, cursor.natural()?),
            b"scheduled" => once(&mut self.scheduled_ns, cursor.natural()?),
            b"process" => once(&mut self.process, cursor.natural()?),
            b"type" => {
                let kind = match cursor.string()? {
                    b"invoke" => Kind::Invoke,
                    b"ok" => Kind::Ok,
                    b"fail" => Kind::Fail,
                    b"info" => Kind::Info,
                    _ => return None,
                };
                once(&mut self.kind, kind)
            }
            b"f" => {
                let function = match cursor.string()? {
                    b"send" => Known::Send,
                    b"poll" => Known::Poll,
                    b"txn" => Known::Txn,
                    b"assign" => Known::Assign,
                    b"subscribe" => Known::Subscribe,
                    b"crash" => Known::Crash,
                    _ => return None,
                };
                once(&mut self.function, function)
            }
            b"value" => {
                // Where it comes before what tells its shape, the careful reader sorts it out.
                self.process?;
                let value = match self.function? {
                    known @ (Known::Send | Known::Poll | Known::Txn) => {
                        cursor.ops(self.kind?, known, chunk)?
                    }
                    Known::Assign | Known::Subscribe => RawValue::Names(cursor.names(chunk)?),
                    Known::Crash => {
                        cursor.null()?;
                        RawValue::Nothing
                    }
                };
                once(&mut self.value, value)
            }
            b"seek-to-beginning" => once(&mut self.seek_to_beginning, cursor.boolean()?),
            b"error" => {
                let text = str::from_utf8(cursor.string()?).ok()?;
                once(&mut self.error, chunk.intern_error(text))
            }
            b"rebalance-log" => once(&mut self.rebalanced, cursor.rebalance_log(chunk)?),
            _ => None,
        }
    }

    fn finish(self, chunk: &mut Chunk) -> Option<RawEvent> {
        Some(RawEvent {
            index: self.index?,
            time_ns: self.time_ns?,
            scheduled_ns: self.scheduled_ns,
            process: Process::Client(self.process?),
            line: chunk.lines,
            function: chunk.function_table.intern(self.function?.name()),
            kind: self.kind?,
            seek_to_beginning: self.seek_to_beginning.unwrap_or(false),
            error: self.error,
            value: self.value?,
            rebalanced: self.rebalanced.unwrap_or_default(),
        })
    }
}

/// A place in a line.
struct Cursor<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Cursor<'a> {
    fn skip_space(&mut self) {
        while let Some(b' ' | b'\t' | b'\r') = self.bytes.get(self.at) {
            self.at += 1;
        }
    }

    /// The next byte that is no space, left where it is.
    fn peek(&mut self) -> Option<u8> {
        self.skip_space();
        self.bytes.get(self.at).copied()
    }

    /// The next byte that is no space.
    fn next(&mut self) -> Option<u8> {
        let byte = self.peek()?;
        self.at += 1;
        Some(byte)
    }

    fn expect(&mut self, byte: u8) -> Option<()> {
        (self.next()? == byte).then_some(())
    }

    /// A string without escapes; its bytes.
    fn string(&mut self) -> Option<&'a [u8]> {
        self.expect(b'"')?;
        let rest = self.bytes.get(self.at..)?;
        let end = rest.iter().position(|byte| matches!(byte, b'"' | b'\\' | 0..0x20))?;
        self.at += end + 1;
        (rest[end] == b'"').then(|| &rest[..end])
    }

    /// An integer without sign, of at most 18 digits.
    fn natural(&mut self) -> Option<u64> {
        self.peek()?;
        let rest = self.bytes.get(self.at..)?;
        let mut number = 0_u64;
        let mut digits = 0;
        while let Some(byte @ b'0'..=b'9') = rest.get(digits) {
            number = number.wrapping_mul(10).wrapping_add(u64::from(byte - b'0'));
            digits += 1;
        }
        // What follows is a comma or a bracket, or the caller finds it is not.
        let plain = (1..=18).contains(&digits) && (digits == 1 || rest[0] != b'0');
        self.at += digits;
        plain.then_some(number)
    }

    fn integer(&mut self) -> Option<i64> {
        i64::try_from(self.natural()?).ok()
    }

    fn word(&mut self, word: &[u8]) -> Option<()> {
        self.peek()?;
        let found = self.bytes.get(self.at..)?.starts_with(word);
        self.at += word.len();
        found.then_some(())
    }

    fn null(&mut self) -> Option<()> {
        self.word(b"null")
    }

    fn boolean(&mut self) -> Option<bool> {
        if self.peek()? == b't' {
            self.word(b"true").map(|()| true)
        } else {
            self.word(b"false").map(|()| false)
        }
    }

    /// The items of a list, each read by `item`.
    fn list(&mut self, mut item: impl FnMut(&mut Self) -> Option<()>) -> Option<()> {
        self.expect(b'[')?;
        if self.peek()? == b']' {
            self.at += 1;
            return Some(());
        }
        loop {
            item(self)?;
            match self.next()? {
                b',' => {}
                b']' => return Some(()),
                _ => return None,
            }
        }
    }

    fn name(&mut self, chunk: &mut Chunk) -> Option<NameId> {
        let text = str::from_utf8(self.string()?).ok()?;
        Some(chunk.name_table.intern(text))
    }

    fn names(&mut self, chunk: &mut Chunk) -> Option<Span> {
        let start = chunk.names.len();
        self.list(|cursor| {
            let name = cursor.name(chunk)?;
            chunk.names.push(name);
            Some(())
        })?;
        Some(Chunk::span(start, chunk.names.len()))
    }

    fn ops(&mut self, kind: Kind, known: Known, chunk: &mut Chunk) -> Option<RawValue> {
        let start = chunk.ops.len();
        self.list(|cursor| {
            cursor.expect(b'[')?;
            match cursor.string()? {
                b"send" if known != Known::Poll => cursor.send(kind, chunk),
                b"poll" if known != Known::Send => cursor.poll(kind, chunk),
                _ => None,
            }
        })?;
        Some(RawValue::Ops(Chunk::span(start, chunk.ops.len())))
    }

    /// The rest of `["send",KEY,VALUE]` or `["send",KEY,[OFFSET,VALUE]]`.
    fn send(&mut self, kind: Kind, chunk: &mut Chunk) -> Option<()> {
        self.expect(b',')?;
        let key = self.name(chunk)?;
        self.expect(b',')?;
        let op = if self.peek()? == b'[' {
            if kind == Kind::Invoke {
                return None;
            }
            self.at += 1;
            let offset = if self.peek()? == b'n' {
                self.null()?;
                Sent::NOWHERE
            } else {
                self.integer()?
            };
            self.expect(b',')?;
            let value = self.integer()?;
            self.expect(b']')?;
            RawOp::Sent { key, offset, value }
        } else {
            if kind == Kind::Ok {
                return None;
            }
            let value = self.integer()?;
            RawOp::Send { key, value }
        };
        chunk.ops.push(op);
        self.expect(b']')
    }

    /// The rest of `["poll"]` or `["poll",{KEY:[[OFFSET,VALUE],…],…}]`.
    fn poll(&mut self, kind: Kind, chunk: &mut Chunk) -> Option<()> {
        chunk.ops.push(RawOp::Poll);
        match (self.next()?, kind) {
            (b']', Kind::Invoke | Kind::Fail | Kind::Info) => Some(()),
            (b',', Kind::Ok | Kind::Fail | Kind::Info) => {
                self.records(chunk)?;
                self.expect(b']')
            }
            _ => None,
        }
    }

    fn records(&mut self, chunk: &mut Chunk) -> Option<()> {
        self.expect(b'{')?;
        if self.peek()? == b'}' {
            self.at += 1;
            return Some(());
        }
        let mut last: &[u8] = b"";
        loop {
            let name = self.string()?;
            // In order, so that none can come twice.
            if name <= last {
                return None;
            }
            last = name;
            let key = chunk.name_table.intern(str::from_utf8(name).ok()?);
            self.expect(b':')?;
            let first = chunk.pairs.len();
            self.list(|cursor| {
                cursor.expect(b'[')?;
                let offset = cursor.integer()?;
                cursor.expect(b',')?;
                let value = cursor.integer()?;
                chunk.pairs.push((offset, value));
                cursor.expect(b']')
            })?;
            let pairs = Chunk::span(first, chunk.pairs.len());
            chunk.ops.push(RawOp::Batch { key, pairs });
            match self.next()? {
                b',' => {}
                b'}' => return Some(()),
                _ => return None,
            }
        }
    }

    /// `[{"event":"assign","keys":[…]},…]`: the keys alone.
    fn rebalance_log(&mut self, chunk: &mut Chunk) -> Option<Span> {
        let start = chunk.names.len();
        self.list(|cursor| {
            cursor.expect(b'{')?;
            if cursor.string()? != b"event" {
                return None;
            }
            cursor.expect(b':')?;
            if !matches!(cursor.string()?, b"assign" | b"revoke") {
                return None;
            }
            cursor.expect(b',')?;
            if cursor.string()? != b"keys" {
                return None;
            }
            cursor.expect(b':')?;
            cursor.names(chunk)?;
            cursor.expect(b'}')
        })?;
        Some(Chunk::span(start, chunk.names.len()))
    }
}
