//! One question, one answer: a raw client for what ordinary clients hide.

use std::net::Ipv4Addr;
use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use kafka_protocol::messages::{RequestHeader, ResponseHeader};
use kafka_protocol::protocol::{Decodable, Encodable, HeaderVersion, Request, StrBytes};
use thiserror::Error;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// An answer longer than this is not one that we asked for.
const MOST_BYTES: u32 = 64 * 1024 * 1024;
const CLIENT_ID: &str = "highwater-probe";

/// Why a question was not answered.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ProbeError {
    /// No answer in time.
    #[error("{address}: no answer within {waited_ms} ms")]
    Deadline {
        /// Who was asked.
        address: String,
        /// For how long.
        waited_ms: u128,
    },
    /// The connection was refused or broke.
    #[error("{address}: {reason}")]
    Broken {
        /// Who was asked.
        address: String,
        /// What the operating system said.
        reason: String,
    },
    /// The answer cannot be read.
    #[error("{address}: its answer cannot be read: {reason}")]
    Garbled {
        /// Who was asked.
        address: String,
        /// What is wrong with it.
        reason: String,
    },
}

/// Sends `request` in `version` over a connection of its own; the answer.
///
/// # Errors
/// [`ProbeError`] naming the address; never later than `deadline`.
pub async fn ask<R: Request>(
    address: Ipv4Addr,
    port: u16,
    version: i16,
    request: &R,
    deadline: Duration,
) -> Result<R::Response, ProbeError> {
    let name = format!("{address}:{port}");
    let frame = encode(version, request).map_err(|reason| garbled(&name, &reason))?;
    let exchange = async {
        let mut stream = TcpStream::connect((address, port)).await?;
        stream.write_all(&frame).await?;
        let length = stream.read_u32().await?;
        if length > MOST_BYTES {
            return Err(std::io::Error::other(format!(
                "an answer of {length} bytes"
            )));
        }
        let mut answer = vec![0; length as usize];
        stream.read_exact(&mut answer).await?;
        Ok(Bytes::from(answer))
    };
    let answer = timeout(deadline, exchange)
        .await
        .map_err(|_| ProbeError::Deadline {
            address: name.clone(),
            waited_ms: deadline.as_millis(),
        })?
        .map_err(|error| ProbeError::Broken {
            address: name.clone(),
            reason: error.to_string(),
        })?;
    decode::<R>(version, answer).map_err(|reason| garbled(&name, &reason))
}

fn encode<R: Request>(version: i16, request: &R) -> anyhow::Result<Bytes> {
    let header = RequestHeader::default()
        .with_request_api_key(R::KEY)
        .with_request_api_version(version)
        .with_correlation_id(1)
        .with_client_id(Some(StrBytes::from_static_str(CLIENT_ID)));
    let mut body = BytesMut::new();
    header.encode(&mut body, R::header_version(version))?;
    request.encode(&mut body, version)?;
    let mut frame = BytesMut::with_capacity(body.len() + 4);
    frame.put_u32(u32::try_from(body.len())?);
    frame.put(body);
    Ok(frame.freeze())
}

fn decode<R: Request>(version: i16, mut answer: Bytes) -> anyhow::Result<R::Response> {
    ResponseHeader::decode(&mut answer, R::Response::header_version(version))?;
    R::Response::decode(&mut answer, version)
}

fn garbled(address: &str, reason: &anyhow::Error) -> ProbeError {
    ProbeError::Garbled {
        address: address.to_owned(),
        reason: format!("{reason:#}"),
    }
}
