//! From a frame to the handler of its API, and from the answer to a frame.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use kafka_protocol::messages::ApiKey;
use kafka_protocol::protocol::{Encodable, HeaderVersion, Request};

use crate::net::quorum_link::QUORUM_KEY;
use crate::server::api;
use crate::server::budget::Share;
use crate::server::connection::Origin;
use crate::server::services::Services;
use crate::server::versions::{self, Audience};
use crate::wire::frame::encode_response;
use crate::wire::header::{Header, read_header};
use crate::wire::shape;

/// What goes back to who asked.
#[derive(Debug)]
pub(super) enum Answer {
    /// These bytes; `held` is their share of memory until they are sent.
    Frame { bytes: Bytes, held: Option<Share> },
    /// Nothing: the request asked for no answer.
    Nothing,
    /// The connection is of no more use.
    Close(String),
}

/// A request that was begun; its answer.
pub(super) type Pending = Pin<Box<dyn Future<Output = Answer> + Send>>;

/// A request on its way to its handler.
#[derive(Debug)]
pub(super) struct Arrived {
    /// Key, version, correlation id, client id.
    pub(super) header: Header,
    /// What follows the header.
    pub(super) body: Bytes,
    /// Where it came from.
    pub(super) origin: Origin,
}

/// Begins what `frame` asks for. A produce has appended when this returns; all else happens when
/// the answer is awaited.
///
/// # Errors
/// Why the connection must be closed: the frame is not understood.
pub(super) async fn begin(
    mut frame: Bytes,
    origin: &Origin,
    services: &Arc<Services>,
) -> Result<Pending, String> {
    let services = Arc::clone(services);
    if frame.get(..2) == Some(&QUORUM_KEY.to_be_bytes()) && origin.audience != Audience::Clients {
        return quorum(frame, services);
    }
    let header = read_header(&mut frame).map_err(|error| error.to_string())?;
    let key = header.api_key;
    let version = header.api_version;
    let spoken = versions::find(origin.audience, key)
        .ok_or_else(|| format!("{key:?} is not spoken on {}", origin.listener))?;
    if version < spoken.min || version > spoken.max {
        if key == ApiKey::ApiVersions {
            return Ok(ready(api::api_versions::unsupported(&header)));
        }
        return Err(format!(
            "{key:?} version {version} is not spoken; {} to {} are",
            spoken.min, spoken.max
        ));
    }
    // The library reserves memory for as many elements as a body claims to have.
    shape::check(key as i16, version, &frame).map_err(|error| error.to_string())?;
    let arrived = Arrived { header, body: frame, origin: origin.clone() };
    if key == ApiKey::Produce {
        return api::produce::begin(arrived, services).await;
    }
    Ok(Box::pin(async move {
        match handle(key, arrived, &services).await {
            Ok(answer) => answer,
            Err(reason) => Answer::Close(format!("{key:?} version {version}: {reason:#}")),
        }
    }))
}

/// A message of the metadata log: key, version, question number, payload.
fn quorum(mut frame: Bytes, services: Arc<Services>) -> Result<Pending, String> {
    let cut = |_| "a message of the metadata log is cut".to_owned();
    frame.try_get_i32().map_err(cut)?;
    let question = frame.try_get_i32().map_err(cut)?;
    Ok(Box::pin(async move {
        let payload = services.quorum.handle(frame).await;
        let mut bytes = BytesMut::with_capacity(payload.len() + 8);
        let Ok(length) = u32::try_from(payload.len() + 4) else {
            return Answer::Close("an answer of more than 4 GiB".to_owned());
        };
        bytes.put_u32(length);
        bytes.put_i32(question);
        bytes.put(payload);
        Answer::Frame { bytes: bytes.freeze(), held: None }
    }))
}

fn ready(answer: Result<Answer, anyhow::Error>) -> Pending {
    Box::pin(async move {
        answer
            .unwrap_or_else(|error| Answer::Close(format!("the answer cannot be told: {error:#}")))
    })
}

/// Decodes, lets `$handler` answer, encodes.
macro_rules! answer {
    ($arrived:ident, $handler:expr) => {{
        let request = decode(&$arrived)?;
        let response = $handler(request, &$arrived).await;
        encode(&$arrived.header, &response)
    }};
}

async fn handle(key: ApiKey, a: Arrived, services: &Arc<Services>) -> anyhow::Result<Answer> {
    use crate::server::api::{
        admin, api_versions, cluster, configs, controllers, delete_records, fetch,
        find_coordinator, groups, init_producer_id, leader_epoch, list_offsets, log_dirs, metadata,
        producers, topic_partitions,
    };
    let s = services;
    match key {
        ApiKey::Fetch => fetch::handle(decode(&a)?, &a, s).await,
        ApiKey::ListOffsets => answer!(a, |r, a| list_offsets::handle(r, a, s)),
        ApiKey::Metadata => answer!(a, |r, a| metadata::handle(r, a, s)),
        ApiKey::ApiVersions => answer!(a, |r, a| api_versions::handle(r, a, s)),
        ApiKey::FindCoordinator => answer!(a, |r, a| find_coordinator::handle(r, a, s)),
        ApiKey::InitProducerId => answer!(a, |r, a| init_producer_id::handle(r, a, s)),
        ApiKey::OffsetForLeaderEpoch => answer!(a, |r, a| leader_epoch::handle(r, a, s)),
        ApiKey::DescribeConfigs => answer!(a, |r, a| configs::describe(r, a, s)),
        ApiKey::DescribeLogDirs => answer!(a, |r, a| log_dirs::handle(r, a, s)),
        ApiKey::DeleteRecords => answer!(a, |r, a| delete_records::handle(r, a, s)),
        ApiKey::DescribeCluster => answer!(a, |r, a| cluster::handle(r, a, s)),
        ApiKey::DescribeProducers => answer!(a, |r, a| producers::handle(r, a, s)),
        ApiKey::DescribeTopicPartitions => answer!(a, |r, a| topic_partitions::handle(r, a, s)),
        ApiKey::JoinGroup => answer!(a, |r, a| groups::join(r, a, s)),
        ApiKey::SyncGroup => answer!(a, |r, a| groups::sync(r, a, s)),
        ApiKey::Heartbeat => answer!(a, |r, a| groups::heartbeat(r, a, s)),
        ApiKey::LeaveGroup => answer!(a, |r, a| groups::leave(r, a, s)),
        ApiKey::OffsetCommit => answer!(a, |r, a| groups::offset_commit(r, a, s)),
        ApiKey::OffsetFetch => answer!(a, |r, a| groups::offset_fetch(r, a, s)),
        ApiKey::OffsetDelete => answer!(a, |r, a| groups::offset_delete(r, a, s)),
        ApiKey::DescribeGroups => answer!(a, |r, a| groups::describe(r, a, s)),
        ApiKey::ListGroups => answer!(a, |r, a| groups::list(r, a, s)),
        ApiKey::DeleteGroups => answer!(a, |r, a| groups::delete(r, a, s)),
        _ if s.controller.is_none() || a.origin.audience != Audience::Controllers => {
            admin::forward(key, &a, s).await
        }
        ApiKey::AlterPartition => answer!(a, |r, a| controllers::alter_partition(r, a, s)),
        ApiKey::BrokerRegistration => answer!(a, |r, a| controllers::register(r, a, s)),
        ApiKey::BrokerHeartbeat => answer!(a, |r, a| controllers::heartbeat(r, a, s)),
        ApiKey::AllocateProducerIds => answer!(a, |r, a| controllers::producer_ids(r, a, s)),
        ApiKey::CreateTopics => answer!(a, |r, a| admin::create_topics(r, a, s)),
        ApiKey::DeleteTopics => answer!(a, |r, a| admin::delete_topics(r, a, s)),
        ApiKey::CreatePartitions => answer!(a, |r, a| admin::create_partitions(r, a, s)),
        ApiKey::ElectLeaders => answer!(a, |r, a| admin::elect_leaders(r, a, s)),
        ApiKey::IncrementalAlterConfigs => answer!(a, |r, a| configs::alter(r, a, s)),
        ApiKey::AlterPartitionReassignments => answer!(a, |r, a| admin::reassign(r, a, s)),
        ApiKey::ListPartitionReassignments => answer!(a, |r, a| admin::reassignments(r, a, s)),
        ApiKey::DescribeQuorum => answer!(a, |r, a| cluster::describe_quorum(r, a, s)),
        _ => anyhow::bail!("announced, but not spoken"),
    }
}

/// The request in `arrived`.
pub(super) fn decode<R: Request>(arrived: &Arrived) -> anyhow::Result<R> {
    let mut body = arrived.body.clone();
    R::decode(&mut body, arrived.header.api_version)
}

/// The frame of `response`.
pub(super) fn encode<T: Encodable + HeaderVersion>(
    header: &Header,
    response: &T,
) -> anyhow::Result<Answer> {
    let bytes = encode_response(header.api_version, header.correlation_id, response)?;
    Ok(Answer::Frame { bytes, held: None })
}
