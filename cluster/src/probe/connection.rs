//! One question, one answer: a raw client for what ordinary clients hide.

use std::net::Ipv4Addr;
use std::ops::RangeInclusive;
use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use kafka_protocol::messages::{
    ApiKey, ApiVersionsRequest, ApiVersionsResponse, RequestHeader, ResponseHeader,
};
use kafka_protocol::protocol::{Decodable, Encodable, HeaderVersion, Request, StrBytes};
use thiserror::Error;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// An answer longer than this is not one that we asked for.
const MOST_BYTES: u32 = 64 * 1024 * 1024;
const CLIENT_ID: &str = "highwater-probe";
/// Every broker answers this one, with the versions of all the rest.
const API_VERSIONS_VERSION: i16 = 0;

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
    /// The two have no version of this request in common.
    #[error("{address}: it speaks {api} in {theirs}, and is asked in {ours}")]
    Unsupported {
        /// Who was asked.
        address: String,
        /// Which request.
        api: String,
        /// What it speaks.
        theirs: String,
        /// What is wanted.
        ours: String,
    },
    /// The answer is an error.
    #[error("{address}: {reason}")]
    Refused {
        /// Who was asked.
        address: String,
        /// The error's name, and what the broker adds.
        reason: String,
    },
}

/// Sends `request` over a connection of its own, in the newest of `versions` that the node
/// speaks; the answer.
///
/// # Errors
/// [`ProbeError`] naming the address; never later than `deadline`.
pub async fn ask<R: Request>(
    address: Ipv4Addr,
    port: u16,
    versions: RangeInclusive<i16>,
    request: &R,
    deadline: Duration,
) -> Result<R::Response, ProbeError> {
    within(address, port, deadline, async {
        Dialogue::open(address, port).await?.ask(versions, request).await
    })
    .await
}

/// What `exchange` with a node comes to, if it does by `deadline`.
pub(super) async fn within<T>(
    address: Ipv4Addr,
    port: u16,
    deadline: Duration,
    exchange: impl Future<Output = Result<T, ProbeError>>,
) -> Result<T, ProbeError> {
    timeout(deadline, exchange).await.map_err(|_| ProbeError::Deadline {
        address: format!("{address}:{port}"),
        waited_ms: deadline.as_millis(),
    })?
}

/// The newest version that both know; else what the node speaks.
fn choose<R: Request>(
    spoken: &ApiVersionsResponse,
    ours: &RangeInclusive<i16>,
) -> Result<i16, String> {
    let theirs = spoken.api_keys.iter().find(|api| api.api_key == R::KEY);
    let theirs = theirs.ok_or("no version")?;
    let newest = theirs.max_version.min(*ours.end());
    if newest >= theirs.min_version.max(*ours.start()) {
        return Ok(newest);
    }
    Err(format!("versions {} to {}", theirs.min_version, theirs.max_version))
}

fn unsupported<R: Request>(
    address: &str,
    theirs: String,
    ours: &RangeInclusive<i16>,
) -> ProbeError {
    let api = ApiKey::try_from(R::KEY);
    ProbeError::Unsupported {
        address: address.to_owned(),
        api: api.map_or_else(|()| format!("request {}", R::KEY), |api| format!("{api:?}")),
        theirs,
        ours: format!("versions {} to {}", ours.start(), ours.end()),
    }
}

/// A connection on which one question follows the other: all to one process of the node.
pub(super) struct Dialogue {
    stream: TcpStream,
    name: String,
    questions: i32,
    spoken: ApiVersionsResponse,
}

impl Dialogue {
    /// Connects, and asks what the node speaks.
    ///
    /// # Errors
    /// [`ProbeError`] naming the address.
    pub(super) async fn open(address: Ipv4Addr, port: u16) -> Result<Self, ProbeError> {
        let name = format!("{address}:{port}");
        let stream = TcpStream::connect((address, port)).await.map_err(|error| {
            ProbeError::Broken { address: name.clone(), reason: error.to_string() }
        })?;
        let spoken = ApiVersionsResponse::default();
        let mut dialogue = Self { stream, name, questions: 0, spoken };
        dialogue.spoken =
            dialogue.put(API_VERSIONS_VERSION, &ApiVersionsRequest::default()).await?;
        Ok(dialogue)
    }

    /// Asks in the newest of `versions` that the node speaks.
    ///
    /// # Errors
    /// [`ProbeError`] naming the address.
    pub(super) async fn ask<R: Request>(
        &mut self,
        versions: RangeInclusive<i16>,
        request: &R,
    ) -> Result<R::Response, ProbeError> {
        let version = choose::<R>(&self.spoken, &versions)
            .map_err(|theirs| unsupported::<R>(&self.name, theirs, &versions))?;
        self.put(version, request).await
    }

    async fn put<R: Request>(
        &mut self,
        version: i16,
        request: &R,
    ) -> Result<R::Response, ProbeError> {
        self.questions += 1;
        let frame = encode(version, self.questions, request)
            .map_err(|reason| garbled(&self.name, &reason))?;
        let answer = self.exchange(&frame).await.map_err(|error| ProbeError::Broken {
            address: self.name.clone(),
            reason: error.to_string(),
        })?;
        decode::<R>(version, self.questions, answer).map_err(|reason| garbled(&self.name, &reason))
    }

    async fn exchange(&mut self, frame: &[u8]) -> std::io::Result<Bytes> {
        self.stream.write_all(frame).await?;
        let length = self.stream.read_u32().await?;
        if length > MOST_BYTES {
            return Err(std::io::Error::other(format!("an answer of {length} bytes")));
        }
        let mut answer = vec![0; length as usize];
        self.stream.read_exact(&mut answer).await?;
        Ok(Bytes::from(answer))
    }
}

fn encode<R: Request>(version: i16, question: i32, request: &R) -> anyhow::Result<Bytes> {
    let header = RequestHeader::default()
        .with_request_api_key(R::KEY)
        .with_request_api_version(version)
        .with_correlation_id(question)
        .with_client_id(Some(StrBytes::from_static_str(CLIENT_ID)));
    let mut body = BytesMut::new();
    header.encode(&mut body, R::header_version(version))?;
    request.encode(&mut body, version)?;
    let mut frame = BytesMut::with_capacity(body.len() + 4);
    frame.put_u32(u32::try_from(body.len())?);
    frame.put(body);
    Ok(frame.freeze())
}

fn decode<R: Request>(
    version: i16,
    question: i32,
    mut answer: Bytes,
) -> anyhow::Result<R::Response> {
    let header = ResponseHeader::decode(&mut answer, R::Response::header_version(version))?;
    if header.correlation_id != question {
        anyhow::bail!("it answers question {}, not {question}", header.correlation_id);
    }
    let response = R::Response::decode(&mut answer, version)?;
    if !answer.is_empty() {
        anyhow::bail!("{} bytes follow it", answer.len());
    }
    Ok(response)
}

fn garbled(address: &str, reason: &anyhow::Error) -> ProbeError {
    ProbeError::Garbled { address: address.to_owned(), reason: format!("{reason:#}") }
}

#[cfg(test)]
mod tests {
    use kafka_protocol::messages::MetadataRequest;
    use kafka_protocol::messages::api_versions_response::ApiVersion;
    use tokio::net::TcpListener;

    use super::*;

    const HERE: Ipv4Addr = Ipv4Addr::LOCALHOST;
    const SOON: Duration = Duration::from_millis(300);

    fn speaks(min: i16, max: i16) -> ApiVersionsResponse {
        let metadata =
            ApiVersion::default().with_api_key(3).with_min_version(min).with_max_version(max);
        ApiVersionsResponse::default().with_api_keys(vec![metadata])
    }

    #[test]
    fn the_newest_common_version_is_chosen() {
        assert_eq!(choose::<MetadataRequest>(&speaks(0, 13), &(9..=12)), Ok(12));
        assert_eq!(choose::<MetadataRequest>(&speaks(0, 10), &(9..=12)), Ok(10));
        assert_eq!(choose::<MetadataRequest>(&speaks(12, 20), &(9..=12)), Ok(12));
    }

    #[test]
    fn no_common_version_tells_both_sides() {
        for (spoken, theirs) in
            [(speaks(0, 8), "versions 0 to 8"), (ApiVersionsResponse::default(), "no version")]
        {
            let said = choose::<MetadataRequest>(&spoken, &(9..=12)).unwrap_err();
            assert_eq!(said, theirs);
            let error = unsupported::<MetadataRequest>("n1:9094", said, &(9..=12));
            assert_eq!(
                error.to_string(),
                format!(
                    "n1:9094: it speaks Metadata in {theirs}, and is asked in versions 9 to 12"
                )
            );
        }
    }

    async fn asked(answer: &'static [u8]) -> ProbeError {
        let listener = TcpListener::bind((HERE, 0)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let serve = async {
            let (mut stream, _) = listener.accept().await.unwrap();
            stream.write_all(answer).await.unwrap();
            // Held open: the end of the stream would be another error.
            tokio::time::sleep(SOON * 2).await;
        };
        let request = MetadataRequest::default();
        let question = ask(HERE, port, 9..=12, &request, SOON);
        tokio::select! {
            error = question => error.unwrap_err(),
            () = serve => panic!("no error came"),
        }
    }

    #[tokio::test]
    async fn silence_nonsense_and_refusal_are_told_apart() {
        assert!(matches!(asked(&[]).await, ProbeError::Deadline { waited_ms: 300, .. }));
        let huge = asked(&[0xff; 4]).await;
        assert!(matches!(huge, ProbeError::Broken { .. }), "{huge}");
        let other = asked(&[0, 0, 0, 4, 0, 0, 0, 9]).await;
        assert!(other.to_string().contains("answers question 9, not 1"), "{other}");
        let short = asked(&[0, 0, 0, 4, 0, 0, 0, 1]).await;
        assert!(matches!(short, ProbeError::Garbled { .. }), "{short}");
        let free = TcpListener::bind((HERE, 0)).await.unwrap().local_addr().unwrap().port();
        let refused = ask(HERE, free, 9..=12, &MetadataRequest::default(), SOON).await;
        assert!(matches!(refused, Err(ProbeError::Broken { .. })), "{refused:?}");
    }
}
