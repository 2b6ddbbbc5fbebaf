//! Frames: a length, and so many bytes.

use std::io;

use bytes::{BufMut, Bytes, BytesMut};
use kafka_protocol::messages::ResponseHeader;
use kafka_protocol::protocol::{Encodable, HeaderVersion};
use thiserror::Error;
use tokio::io::{AsyncRead, AsyncReadExt};

/// Memory for a frame grows by so much at most ahead of the bytes that have come.
const STEP: usize = 1024 * 1024;

/// Why there is no frame.
#[derive(Debug, Error)]
pub enum FrameError {
    /// It claims to be longer than may be.
    #[error("a frame of {length} bytes; at most {most} are taken")]
    TooLong {
        /// What it claims.
        length: u32,
        /// What may be.
        most: u32,
    },
    /// The connection ended inside a frame, or broke.
    #[error("the connection broke: {0}")]
    Broken(#[from] io::Error),
}

/// The length of the next frame; `None` where the connection ends instead.
///
/// # Errors
/// [`FrameError`].
pub async fn read_length<R: AsyncRead + Unpin>(
    read: &mut R,
    most: u32,
) -> Result<Option<u32>, FrameError> {
    let mut bytes = [0; 4];
    let first = read.read(&mut bytes).await?;
    if first == 0 {
        return Ok(None);
    }
    read.read_exact(&mut bytes[first..]).await?;
    let length = u32::from_be_bytes(bytes);
    if length > most {
        return Err(FrameError::TooLong { length, most });
    }
    Ok(Some(length))
}

/// The bytes of a frame whose length was read. Memory is taken as they come.
///
/// # Errors
/// [`FrameError`].
pub async fn read_body<R: AsyncRead + Unpin>(
    read: &mut R,
    length: u32,
) -> Result<Bytes, FrameError> {
    let length = length as usize;
    let mut body = BytesMut::with_capacity(length.min(STEP));
    while body.len() < length {
        body.reserve((length - body.len()).min(STEP));
        let mut part = (&mut *read).take((length - body.len()) as u64);
        if part.read_buf(&mut body).await? == 0 {
            return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
        }
    }
    Ok(body.freeze())
}

/// The next frame; `None` where the connection ends instead.
///
/// # Errors
/// [`FrameError`].
pub async fn read_frame<R: AsyncRead + Unpin>(
    read: &mut R,
    most: u32,
) -> Result<Option<Bytes>, FrameError> {
    match read_length(read, most).await? {
        Some(length) => read_body(read, length).await.map(Some),
        None => Ok(None),
    }
}

/// A response as a frame.
///
/// # Errors
/// The response cannot be told in that version.
pub fn encode_response<T: Encodable + HeaderVersion>(
    version: i16,
    correlation_id: i32,
    response: &T,
) -> anyhow::Result<Bytes> {
    let header = ResponseHeader::default().with_correlation_id(correlation_id);
    let header_version = T::header_version(version);
    let length = header.compute_size(header_version)? + response.compute_size(version)?;
    let mut frame = BytesMut::with_capacity(length + 4);
    frame.put_u32(u32::try_from(length)?);
    header.encode(&mut frame, header_version)?;
    response.encode(&mut frame, version)?;
    Ok(frame.freeze())
}

/// An answer whose body is encoded already, as a frame.
///
/// # Errors
/// It is longer than a frame may be.
pub fn wrap_response(
    header_version: i16,
    correlation_id: i32,
    body: &[u8],
) -> anyhow::Result<Bytes> {
    let header = ResponseHeader::default().with_correlation_id(correlation_id);
    let length = header.compute_size(header_version)? + body.len();
    let mut frame = BytesMut::with_capacity(length + 4);
    frame.put_u32(u32::try_from(length)?);
    header.encode(&mut frame, header_version)?;
    frame.put_slice(body);
    Ok(frame.freeze())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn frames_are_read_and_what_is_none_is_told() {
        let mut bytes: &[u8] = &[0, 0, 0, 2, 7, 8, 0, 0, 0, 0];
        assert_eq!(read_frame(&mut bytes, 10).await.unwrap().unwrap(), &[7, 8][..]);
        assert_eq!(read_frame(&mut bytes, 10).await.unwrap().unwrap(), &[][..]);
        assert!(read_frame(&mut bytes, 10).await.unwrap().is_none());
        let mut long: &[u8] = &[0x80, 0, 0, 0];
        assert!(matches!(read_frame(&mut long, 10).await, Err(FrameError::TooLong { .. })));
        let mut cut: &[u8] = &[0, 0, 0, 9, 1];
        assert!(matches!(read_frame(&mut cut, 10).await, Err(FrameError::Broken(_))));
    }
}
