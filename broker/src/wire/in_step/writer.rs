//! Bodies that follow the table, and bodies that lie at a chosen place.

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use crate::wire::field::{Field, Request, Value};

/// Writes a body as the table has it.
pub(super) struct Writer {
    random: ChaCha8Rng,
    version: i16,
    flexible: bool,
    pub(super) body: Vec<u8>,
    /// How many lengths and counts were written.
    pub(super) lengths: usize,
    /// Which of them lies, and how.
    lie: Option<(usize, Lie)>,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Lie {
    /// The largest length there is.
    Huge,
    /// A length below null, or a varint that does not end.
    Nonsense,
}

impl Writer {
    pub(super) fn write(
        request: &Request,
        version: i16,
        seed: u64,
        lie: Option<(usize, Lie)>,
    ) -> Self {
        let mut writer = Self {
            random: ChaCha8Rng::seed_from_u64(seed),
            version,
            flexible: request.is_flexible(version),
            body: Vec::new(),
            lengths: 0,
            lie,
        };
        writer.fields(request.fields);
        writer
    }

    fn fields(&mut self, fields: &[Field]) {
        let version = self.version;
        let here = |field: &&Field| field.is_in(version);
        for field in fields.iter().filter(here).filter(|field| field.tag.is_none()) {
            self.field(field);
        }
        if self.flexible {
            let mut tagged: Vec<_> =
                fields.iter().filter(here).filter(|field| field.tag.is_some()).collect();
            tagged.retain(|_| self.random.random());
            let unknown = self.random.random_range(0..3u32);
            self.varint(u32::try_from(tagged.len()).unwrap() + unknown);
            for field in tagged {
                self.tagged(field.tag.unwrap(), |writer| writer.field(field));
            }
            for tag in 0..unknown {
                self.tagged(100 + 100 * tag, |writer| writer.content(9));
            }
        }
    }

    fn tagged(&mut self, tag: u32, content: impl FnOnce(&mut Self)) {
        self.varint(tag);
        let before = std::mem::take(&mut self.body);
        let place = self.lengths;
        self.lengths += 1;
        content(self);
        let content = std::mem::replace(&mut self.body, before);
        let length = u32::try_from(content.len()).unwrap();
        match self.lie {
            Some((lies, lie)) if lies == place => self.lying_varint(lie),
            _ => self.varint(length),
        }
        self.body.extend(content);
    }

    fn field(&mut self, field: &Field) {
        let null = field.is_nullable_in(self.version) && self.random.random_ratio(1, 4);
        let one_byte = self.flexible;
        match (field.is_array, field.value) {
            (false, Value::Struct(_)) if null => self.body.push(0xff),
            (_, Value::String) if null && !field.is_array && !one_byte => {
                self.body.extend([0xff; 2]);
            }
            _ if null && one_byte => self.body.push(0),
            _ if null => self.body.extend([0xff; 4]),
            (false, Value::Struct(fields)) if field.is_nullable_in(self.version) => {
                self.body.push(1);
                self.fields(fields);
            }
            (false, value) => self.value(value),
            (true, value) => {
                let elements = self.random.random_range(0..4);
                self.length(elements, 4);
                for _ in 0..elements {
                    self.value(value);
                }
            }
        }
    }

    fn value(&mut self, value: Value) {
        match value {
            Value::Boolean => self.body.push(self.random.random_range(0..2)),
            Value::Fixed(bytes) => self.content(bytes),
            Value::Struct(fields) => self.fields(fields),
            Value::String | Value::Bytes => {
                let length = self.random.random_range(0..200u8);
                self.length(length.into(), if matches!(value, Value::String) { 2 } else { 4 });
                let text = (0..length).map(|_| self.random.random_range(b'a'..=b'z'));
                let text: Vec<u8> = text.collect();
                self.body.extend(text);
            }
        }
    }

    fn content(&mut self, bytes: usize) {
        let content: Vec<u8> = (0..bytes).map(|_| self.random.random()).collect();
        self.body.extend(content);
    }

    fn length(&mut self, length: u32, width: usize) {
        let place = self.lengths;
        self.lengths += 1;
        let lie = self.lie.filter(|(lies, _)| *lies == place).map(|(_, lie)| lie);
        match (lie, self.flexible) {
            (Some(lie), true) => self.lying_varint(lie),
            (None, true) => self.varint(length + 1),
            (Some(Lie::Huge), false) => {
                self.body.push(0x7f);
                self.body.extend(vec![0xff; width - 1]);
            }
            (Some(Lie::Nonsense), false) => {
                self.body.extend(vec![0xff; width - 1]);
                self.body.push(0xfe);
            }
            (None, false) => self.body.extend(&length.to_be_bytes()[4 - width..]),
        }
    }

    fn lying_varint(&mut self, lie: Lie) {
        match lie {
            Lie::Huge => self.varint(u32::MAX),
            Lie::Nonsense => self.body.extend([0xff; 5]),
        }
    }

    fn varint(&mut self, mut number: u32) {
        while number >= 0x80 {
            self.body.push(u8::try_from(number & 0x7f).unwrap() | 0x80);
            number >>= 7;
        }
        self.body.push(u8::try_from(number).unwrap());
    }
}
