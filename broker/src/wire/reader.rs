//! Numbers and lengths out of bytes. Nothing is copied, nothing is believed.

/// The longest text that Kafka accepts, in bytes, compact or not.
const MOST_STRING_BYTES: usize = 32_767;

/// What is wrong with a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum What {
    /// The frame ends before the value does.
    #[error("needs {needs} bytes, {left} are left")]
    Cut {
        /// What the value takes, in bytes.
        needs: usize,
        /// What is left of the frame, in bytes.
        left: usize,
    },
    /// A length below zero that does not say "null".
    #[error("has the negative length {0}")]
    Negative(i32),
    /// A null where none may be.
    #[error("is null and may not be")]
    Null,
    /// A number of variable length that does not end, or is beyond 32 bits.
    #[error("has a varint beyond 32 bits")]
    Varint,
    /// A text that Kafka refuses, too.
    #[error("is a text of {0} bytes, the most is 32767")]
    LongString(usize),
    /// An array whose elements cannot all be in what is left of the frame.
    #[error("claims {claimed} elements of at least {least_bytes} bytes, {left} bytes are left")]
    Elements {
        /// How many elements the array claims.
        claimed: usize,
        /// The fewest bytes of an element.
        least_bytes: usize,
        /// What is left of the frame, in bytes.
        left: usize,
    },
    /// More elements in the whole request than the broker decodes.
    #[error("brings the request to {elements} elements, the most is {most}")]
    TooManyElements {
        /// Elements of all arrays up to here.
        elements: usize,
        /// The limit.
        most: usize,
    },
    /// More memory for the whole request than the broker gives.
    #[error("brings the request to {decoded_bytes} bytes in memory, the most is {most}")]
    TooMuchMemory {
        /// What the library would take up to here, in bytes.
        decoded_bytes: usize,
        /// The limit for a frame of this length, in bytes.
        most: usize,
    },
    /// A tagged field that is longer or shorter than it says.
    #[error("is a tagged field of {said} bytes that takes {takes}")]
    TagLength {
        /// The length in front of it, in bytes.
        said: usize,
        /// The length of what it holds, in bytes.
        takes: usize,
    },
    /// A tagged field that this version does not have under a tag that it knows.
    #[error("is a tagged field of another version")]
    TagOfOtherVersion,
    /// A mark before a nullable struct that says neither "here" nor "null".
    #[error("has the mark {0}, neither 1 nor -1")]
    Mark(i8),
}

/// A position in bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reader<'a> {
    bytes: &'a [u8],
    position: usize,
}

impl<'a> Reader<'a> {
    pub(super) const fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, position: 0 }
    }

    pub(super) const fn position(&self) -> usize {
        self.position
    }

    pub(super) const fn left(&self) -> usize {
        self.bytes.len().saturating_sub(self.position)
    }

    /// The next `needs` bytes.
    pub(super) fn take(&mut self, needs: usize) -> Result<&'a [u8], What> {
        let rest = self.bytes.get(self.position..).unwrap_or_default();
        let taken = rest.get(..needs).ok_or(What::Cut { needs, left: rest.len() })?;
        self.position += needs;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], What> {
        let left = self.left();
        let taken = self.take(N)?;
        taken.try_into().map_err(|_| What::Cut { needs: N, left })
    }

    pub(super) fn int8(&mut self) -> Result<i8, What> {
        Ok(i8::from_be_bytes(self.array()?))
    }

    pub(super) fn int16(&mut self) -> Result<i16, What> {
        Ok(i16::from_be_bytes(self.array()?))
    }

    pub(super) fn int32(&mut self) -> Result<i32, What> {
        Ok(i32::from_be_bytes(self.array()?))
    }

    /// An unsigned number of one to five bytes. A form longer than needed is accepted, as Kafka
    /// and the library do; bits beyond the 32nd, which both drop, are not.
    pub(super) fn varint(&mut self) -> Result<u32, What> {
        let mut value = 0;
        for shift in [0, 7, 14, 21, 28] {
            let [byte] = self.array()?;
            let bits = u32::from(byte & 0x7f);
            if shift == 28 && byte > 0x0f {
                return Err(What::Varint);
            }
            value |= bits << shift;
            if byte < 0x80 {
                break;
            }
        }
        Ok(value)
    }

    /// A length as the flexible versions have it: one more than it is, 0 is null.
    fn compact_length(&mut self) -> Result<Option<usize>, What> {
        Ok(self.varint()?.checked_sub(1).map(widen))
    }

    /// The length of bytes, or how many elements an array claims; `None` is null.
    pub(super) fn length(&mut self, flexible: bool) -> Result<Option<usize>, What> {
        if flexible {
            return self.compact_length();
        }
        match self.int32()? {
            -1 => Ok(None),
            length => usize::try_from(length).map(Some).map_err(|_| What::Negative(length)),
        }
    }

    /// The length of a text, in bytes; `None` is null.
    pub(super) fn string_length(&mut self, flexible: bool) -> Result<Option<usize>, What> {
        if flexible {
            let length = self.compact_length()?;
            return match length {
                Some(length) if length > MOST_STRING_BYTES => Err(What::LongString(length)),
                length => Ok(length),
            };
        }
        match self.int16()? {
            -1 => Ok(None),
            length => usize::try_from(length).map(Some).map_err(|_| What::Negative(length.into())),
        }
    }

    /// A number of tagged fields, a tag's length.
    pub(super) fn count(&mut self) -> Result<usize, What> {
        self.varint().map(widen)
    }
}

/// Where a `usize` is narrower, the largest one stands for all that cannot fit in a frame.
fn widen(number: u32) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn varint(bytes: &[u8]) -> Result<u32, What> {
        Reader::new(bytes).varint()
    }

    #[test]
    fn a_varint_takes_up_to_five_bytes_and_32_bits() {
        assert_eq!(varint(&[0x00]), Ok(0));
        assert_eq!(varint(&[0xac, 0x02]), Ok(300));
        assert_eq!(varint(&[0xff, 0xff, 0xff, 0xff, 0x0f]), Ok(u32::MAX));
        assert_eq!(varint(&[0xff, 0xff, 0xff, 0xff, 0x1f]), Err(What::Varint));
        assert_eq!(varint(&[0x80, 0x80, 0x80, 0x80, 0x80, 0x00]), Err(What::Varint));
    }

    #[test]
    fn a_varint_may_be_longer_than_needed_but_must_end() {
        assert_eq!(varint(&[0x81, 0x80, 0x00]), Ok(1));
        assert_eq!(varint(&[0x81, 0x80]), Err(What::Cut { needs: 1, left: 0 }));
    }

    #[test]
    fn minus_one_is_null_and_what_lies_below_is_an_error() {
        let length = |bytes: &[u8]| Reader::new(bytes).length(false);
        assert_eq!(length(&[0xff, 0xff, 0xff, 0xff]), Ok(None));
        assert_eq!(length(&[0xff, 0xff, 0xff, 0xfe]), Err(What::Negative(-2)));
        assert_eq!(length(&[0x7f, 0xff, 0xff, 0xff]), Ok(Some(2_147_483_647)));
        assert_eq!(Reader::new(&[0x80, 0x00]).string_length(false), Err(What::Negative(-32_768)));
    }

    #[test]
    fn a_compact_text_is_no_longer_than_a_plain_one_can_be() {
        let length = |bytes: &[u8]| Reader::new(bytes).string_length(true);
        assert_eq!(length(&[0x00]), Ok(None));
        assert_eq!(length(&[0x80, 0x80, 0x02]), Ok(Some(32_767)));
        assert_eq!(length(&[0x81, 0x80, 0x02]), Err(What::LongString(32_768)));
    }
}
