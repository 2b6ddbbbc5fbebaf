//! The words in which [`shapes`](super::shapes) describes a request, after Kafka's own schemas.

/// A version that no request reaches: "never".
const NEVER: i16 = i16::MAX;

/// What each of the library's structs takes beside its fields, in bytes: its map of unknown tagged
/// fields, and an id that is already there for a version yet to come.
const STRUCT_BYTES: usize = 24 + 16;

/// A request of one API in all its versions.
#[derive(Clone, Copy, Debug)]
pub struct Request {
    /// The API's key.
    pub key: i16,
    /// The API's name, as Kafka has it.
    pub name: &'static str,
    /// The first version that the library decodes.
    pub oldest: i16,
    /// The last version that the library decodes.
    pub newest: i16,
    flexible_since: i16,
    /// The fields of the body.
    pub fields: &'static [Field],
}

/// A field of a struct.
#[derive(Clone, Copy, Debug)]
pub struct Field {
    /// Its name, for errors.
    pub name: &'static str,
    /// What it holds; in an array, what each element is.
    pub value: Value,
    /// Whether it is an array of such values.
    pub is_array: bool,
    /// The tag under which it stands among the tagged fields (KIP-482); without one it has a fixed
    /// place.
    pub tag: Option<u32>,
    since: i16,
    until: i16,
    nullable_since: i16,
}

/// What a field or an element of an array holds.
#[derive(Clone, Copy, Debug)]
pub enum Value {
    /// A byte that is zero or not.
    Boolean,
    /// A number or an id of this many bytes.
    Fixed(usize),
    /// Text: a length and that many bytes.
    String,
    /// Bytes or records: a length and that many bytes.
    Bytes,
    /// A struct of these fields.
    Struct(&'static [Field]),
}

impl Request {
    /// Whether the version has compact lengths and tagged fields (KIP-482).
    pub const fn is_flexible(&self, version: i16) -> bool {
        version >= self.flexible_since
    }

    /// Whether the library decodes that version.
    pub const fn has(&self, version: i16) -> bool {
        self.oldest <= version && version <= self.newest
    }

    pub(super) const fn versions(mut self, oldest: i16, newest: i16) -> Self {
        self.oldest = oldest;
        self.newest = newest;
        self
    }

    pub(super) const fn flexible_since(mut self, version: i16) -> Self {
        self.flexible_since = version;
        self
    }

    pub(super) const fn fields(mut self, fields: &'static [Field]) -> Self {
        self.fields = fields;
        self
    }
}

impl Field {
    const fn new(name: &'static str, value: Value) -> Self {
        Self {
            name,
            value,
            is_array: false,
            tag: None,
            since: 0,
            until: NEVER,
            nullable_since: NEVER,
        }
    }

    const fn array(name: &'static str, value: Value) -> Self {
        let mut field = Self::new(name, value);
        field.is_array = true;
        field
    }

    /// Whether that version of the request has the field.
    pub const fn is_in(&self, version: i16) -> bool {
        self.since <= version && version <= self.until
    }

    /// Whether the field may be null in that version.
    pub const fn is_nullable_in(&self, version: i16) -> bool {
        version >= self.nullable_since
    }

    /// New in `version`.
    pub(super) const fn since(mut self, version: i16) -> Self {
        self.since = version;
        self
    }

    /// Gone after `version`.
    pub(super) const fn until(mut self, version: i16) -> Self {
        self.until = version;
        self
    }

    /// May be null in every version.
    pub(super) const fn nullable(self) -> Self {
        self.nullable_since(0)
    }

    /// May be null from `version` on.
    pub(super) const fn nullable_since(mut self, version: i16) -> Self {
        self.nullable_since = version;
        self
    }

    /// Stands among the tagged fields.
    pub(super) const fn tagged(mut self, tag: u32) -> Self {
        self.tag = Some(tag);
        self
    }

    /// The fields of the struct, or of each struct in the array.
    pub(super) const fn of(mut self, fields: &'static [Self]) -> Self {
        self.value = Value::Struct(fields);
        self
    }

    /// The fewest bytes that the field takes on the wire.
    fn least_bytes(&self, version: i16, flexible: bool) -> usize {
        match self.value {
            _ if self.is_array => Value::Bytes.least_bytes(version, flexible),
            Value::Struct(_) if self.is_nullable_in(version) => 1,
            value => value.least_bytes(version, flexible),
        }
    }
}

impl Value {
    /// The fewest bytes that such a value takes on the wire.
    pub fn least_bytes(&self, version: i16, flexible: bool) -> usize {
        match self {
            Self::Fixed(bytes) => *bytes,
            Self::String if !flexible => 2,
            Self::Bytes if !flexible => 4,
            Self::Boolean | Self::String | Self::Bytes => 1,
            Self::Struct(fields) => {
                let here =
                    fields.iter().filter(|field| field.tag.is_none() && field.is_in(version));
                here.map(|field| field.least_bytes(version, flexible)).sum::<usize>()
                    + usize::from(flexible)
            }
        }
    }

    /// At least what such a value takes in memory as an element of a decoded array, without what
    /// it points to. Text and bytes point into the frame and copy nothing.
    pub fn decoded_bytes(&self) -> usize {
        match self {
            Self::Boolean => 1,
            Self::Fixed(bytes) => *bytes,
            Self::String | Self::Bytes => 32,
            Self::Struct(fields) => {
                STRUCT_BYTES + fields.iter().map(Field::decoded_bytes).sum::<usize>()
            }
        }
    }
}

impl Field {
    /// At least what the field takes in the library's struct. It has the fields of all versions.
    fn decoded_bytes(&self) -> usize {
        match self.value {
            _ if self.is_array => 24,
            Value::Struct(_) => 8 + self.value.decoded_bytes(),
            value => value.decoded_bytes().max(8),
        }
    }
}

pub(super) const fn api(key: i16, name: &'static str) -> Request {
    Request { key, name, oldest: 0, newest: 0, flexible_since: NEVER, fields: &[] }
}

pub(super) const fn boolean(name: &'static str) -> Field {
    Field::new(name, Value::Boolean)
}

pub(super) const fn int8(name: &'static str) -> Field {
    Field::new(name, Value::Fixed(1))
}

pub(super) const fn int16(name: &'static str) -> Field {
    Field::new(name, Value::Fixed(2))
}

pub(super) const fn uint16(name: &'static str) -> Field {
    Field::new(name, Value::Fixed(2))
}

pub(super) const fn int32(name: &'static str) -> Field {
    Field::new(name, Value::Fixed(4))
}

pub(super) const fn int64(name: &'static str) -> Field {
    Field::new(name, Value::Fixed(8))
}

pub(super) const fn uuid(name: &'static str) -> Field {
    Field::new(name, Value::Fixed(16))
}

pub(super) const fn string(name: &'static str) -> Field {
    Field::new(name, Value::String)
}

pub(super) const fn bytes(name: &'static str) -> Field {
    Field::new(name, Value::Bytes)
}

/// A struct; [`Field::of`] says of what.
pub(super) const fn structure(name: &'static str) -> Field {
    Field::new(name, Value::Struct(&[]))
}

/// An array of structs; [`Field::of`] says of what.
pub(super) const fn array(name: &'static str) -> Field {
    Field::array(name, Value::Struct(&[]))
}

pub(super) const fn int8s(name: &'static str) -> Field {
    Field::array(name, Value::Fixed(1))
}

pub(super) const fn int32s(name: &'static str) -> Field {
    Field::array(name, Value::Fixed(4))
}

pub(super) const fn uuids(name: &'static str) -> Field {
    Field::array(name, Value::Fixed(16))
}

pub(super) const fn strings(name: &'static str) -> Field {
    Field::array(name, Value::String)
}
