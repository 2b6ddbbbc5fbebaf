//! One connection to another node.

use std::time::Duration;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use kafka_protocol::messages::{RequestHeader, ResponseHeader};
use kafka_protocol::protocol::{Decodable, Encodable, HeaderVersion, Request, StrBytes};
use thiserror::Error;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout_at};

use crate::wire::frame::read_frame;

/// An answer longer than this is not one that we asked for.
const MOST_BYTES: u32 = 256 * 1024 * 1024;

/// Why a question got no answer.
#[derive(Debug, Error)]
pub enum AskError {
    /// Nothing was sent: the node certainly did not get the question.
    #[error("{address}: cannot connect: {reason}")]
    Unreachable {
        /// Who was asked.
        address: String,
        /// What the operating system said.
        reason: String,
    },
    /// The connection broke, or no answer came in time: the node may have acted.
    #[error("{address}: {reason}")]
    Unanswered {
        /// Who was asked.
        address: String,
        /// What happened.
        reason: String,
    },
    /// The answer, or the question, does not fit the protocol.
    #[error("{address}: {reason}")]
    Garbled {
        /// Who was asked.
        address: String,
        /// What is wrong.
        reason: String,
    },
}

/// A connection on which one question follows the other. After an error it is of no more use.
#[derive(Debug)]
pub struct Connection {
    stream: TcpStream,
    address: String,
    questions: i32,
}

impl Connection {
    /// Connects to `address`, `host:port`, within `limit`.
    ///
    /// # Errors
    /// [`AskError::Unreachable`].
    pub async fn open(address: &str, limit: Duration) -> Result<Self, AskError> {
        let unreachable =
            |reason: String| AskError::Unreachable { address: address.to_owned(), reason };
        let stream = tokio::time::timeout(limit, TcpStream::connect(address))
            .await
            .map_err(|_| unreachable(format!("no connection within {} ms", limit.as_millis())))?
            .map_err(|error| unreachable(error.to_string()))?;
        stream.set_nodelay(true).map_err(|error| unreachable(error.to_string()))?;
        Ok(Self { stream, address: address.to_owned(), questions: 0 })
    }

    /// Who is at the other end, `host:port`.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// Sends `request` in `version`; the answer, within `limit`.
    ///
    /// # Errors
    /// [`AskError::Unanswered`] or [`AskError::Garbled`].
    pub async fn ask<R: Request>(
        &mut self,
        version: i16,
        request: &R,
        limit: Duration,
    ) -> Result<R::Response, AskError> {
        let mut body = BytesMut::new();
        request.encode(&mut body, version).map_err(|error| self.garbled(&error))?;
        let mut answer = self
            .forward(
                R::KEY,
                version,
                R::header_version(version),
                R::Response::header_version(version),
                &body,
                limit,
            )
            .await?;
        R::Response::decode(&mut answer, version).map_err(|error| self.garbled(&error))
    }

    /// Sends a request whose body is encoded already; the body of the answer, as it is.
    ///
    /// # Errors
    /// [`AskError::Unanswered`] or [`AskError::Garbled`].
    pub async fn forward(
        &mut self,
        key: i16,
        version: i16,
        request_header_version: i16,
        response_header_version: i16,
        body: &[u8],
        limit: Duration,
    ) -> Result<Bytes, AskError> {
        self.questions = self.questions.wrapping_add(1);
        let header = RequestHeader::default()
            .with_request_api_key(key)
            .with_request_api_version(version)
            .with_correlation_id(self.questions)
            .with_client_id(Some(StrBytes::from_static_str("highwater-broker")));
        let mut head = BytesMut::with_capacity(64);
        head.put_u32(0);
        header.encode(&mut head, request_header_version).map_err(|error| self.garbled(&error))?;
        let mut answer = self.exchange(head, body, limit).await?;
        let header = ResponseHeader::decode(&mut answer, response_header_version)
            .map_err(|error| self.garbled(&error))?;
        self.is_answer(header.correlation_id)?;
        Ok(answer)
    }

    /// Sends bytes under an API key that Kafka does not have; the bytes of the answer.
    ///
    /// # Errors
    /// [`AskError::Unanswered`] or [`AskError::Garbled`].
    pub async fn exchange_raw(
        &mut self,
        key: i16,
        payload: &[u8],
        limit: Duration,
    ) -> Result<Bytes, AskError> {
        self.questions = self.questions.wrapping_add(1);
        let mut head = BytesMut::with_capacity(12);
        head.put_u32(0);
        head.put_i16(key);
        head.put_i16(0);
        head.put_i32(self.questions);
        let mut answer = self.exchange(head, payload, limit).await?;
        let question = answer.try_get_i32().map_err(|_| self.broken("an answer without an id"))?;
        self.is_answer(question)?;
        Ok(answer)
    }

    fn is_answer(&self, question: i32) -> Result<(), AskError> {
        if question == self.questions {
            return Ok(());
        }
        Err(AskError::Garbled {
            address: self.address.clone(),
            reason: format!("it answers question {question}, not {}", self.questions),
        })
    }

    /// `head` begins with four bytes left for the length.
    async fn exchange(
        &mut self,
        mut head: BytesMut,
        body: &[u8],
        limit: Duration,
    ) -> Result<Bytes, AskError> {
        let until = Instant::now() + limit;
        let length = u32::try_from(head.len() - 4 + body.len())
            .map_err(|_| self.broken("a question of more than 4 GiB"))?;
        head[..4].copy_from_slice(&length.to_be_bytes());
        let stream = &mut self.stream;
        let dialogue = async {
            stream.write_all(&head).await.map_err(|error| error.to_string())?;
            stream.write_all(body).await.map_err(|error| error.to_string())?;
            read_frame(stream, MOST_BYTES).await.map_err(|error| error.to_string())
        };
        match timeout_at(until, dialogue).await {
            Ok(Ok(Some(answer))) => Ok(answer),
            Ok(Ok(None)) => Err(self.broken("it closed the connection")),
            Ok(Err(reason)) => Err(self.broken(&reason)),
            Err(_) => Err(self.broken(&format!("no answer within {} ms", limit.as_millis()))),
        }
    }

    fn broken(&self, reason: &str) -> AskError {
        AskError::Unanswered { address: self.address.clone(), reason: reason.to_owned() }
    }

    fn garbled(&self, error: &anyhow::Error) -> AskError {
        AskError::Garbled { address: self.address.clone(), reason: format!("{error:#}") }
    }
}
