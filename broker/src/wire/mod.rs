//! Kafka's protocol as bytes: from a connection to a request that is safe to decode, and back.
//!
//! | subject | module |
//! |---|---|
//! | frames: a length, and so many bytes; responses as frames | [`frame`] |
//! | the request header, versions 1 and 2 | [`header`] |
//! | a body's lengths and counts, checked before the library decodes it | [`shape`] |
//! | what a body is made of: the words of the table | [`field`] |
//! | the table: every request that the broker serves | [`shapes`] |
//! | numbers and lengths out of bytes | `reader` |
//!
//! The way of a request: [`frame::read_frame`], [`header::read_header`], [`shape::check`], then the library's `decode`. The third step is what makes the last one safe:
//! the library reserves memory for as many elements as a frame claims.

pub mod field;
pub mod frame;
pub mod header;
mod reader;
pub mod shape;
pub mod shapes;

#[cfg(test)]
mod in_step;

pub use reader::What;
