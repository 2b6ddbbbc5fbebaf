//! Asks the controller for changes of the ISR: one request at a time, with everything that is
//! proposed by then (R16).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use kafka_protocol::ResponseError;
use kafka_protocol::error::ParseResponseErrorCode;
use kafka_protocol::messages::alter_partition_request::{BrokerState, PartitionData, TopicData};
use kafka_protocol::messages::alter_partition_response::PartitionData as Answered;
use kafka_protocol::messages::{AlterPartitionRequest, BrokerId};
use replication::partition::{AlterPartitionError, AlterPartitionOk, IsrProposal};
use replication::seeded::Bug;
use replication::types::{
    BrokerEpoch, LeaderEpoch, NodeId, PartitionEpoch, PartitionId, Recovery, TopicId,
};
use tokio::sync::{mpsc, watch};
use tokio::time::sleep;
use tracing::{debug, warn};

use crate::net::controllers::Controllers;
use crate::replica::partition::Proposed;

/// Between two attempts after an error.
const BACK_OFF: Duration = Duration::from_millis(50);
const VERSION: i16 = 3;

/// Asks until `proposals` ends.
pub async fn run(
    me: NodeId,
    mut proposals: mpsc::UnboundedReceiver<Proposed>,
    broker_epoch: watch::Receiver<BrokerEpoch>,
    controllers: Arc<Controllers>,
    limit: Duration,
) {
    let mut pending: BTreeMap<PartitionId, Proposed> = BTreeMap::new();
    loop {
        if pending.is_empty() {
            let Some(first) = proposals.recv().await else { return };
            pending.insert(first.partition.id, first);
        }
        while let Ok(next) = proposals.try_recv() {
            // A newer proposal of the same partition replaces the older one.
            pending.insert(next.partition.id, next);
        }
        let epoch = *broker_epoch.borrow();
        let request = request(me, epoch, pending.values());
        match controllers.ask(VERSION, &request, limit).await {
            Ok(response) if response.error_code.is_ok() => {
                let answered = response.topics.iter().flat_map(|topic| {
                    topic.partitions.iter().map(|partition| (TopicId(topic.topic_id), partition))
                });
                let mut retry = false;
                for (topic, answer) in answered {
                    let id = PartitionId { topic, index: answer.partition_index };
                    let Some(proposed) = pending.remove(&id) else { continue };
                    if proposed.partition.answered(&proposed.proposal, outcome(answer)) {
                        retry = true;
                        pending.insert(id, proposed);
                    }
                }
                if !retry {
                    continue;
                }
            }
            Ok(response) => {
                let error = response.error_code.err();
                debug!(?error, "the controller does not change any ISR now");
            }
            Err(error) => {
                warn!(%error, "the controller was not asked for another ISR");
                if Bug::R16LoseRetry.is_on() {
                    pending.clear();
                }
            }
        }
        sleep(BACK_OFF).await;
        // A proposal whose leader epoch is over needs no answer any more.
        pending.retain(|_, proposed| is_current(proposed));
    }
}

fn is_current(proposed: &Proposed) -> bool {
    let progress = proposed.partition.progress();
    progress.leads && !progress.closed && progress.leader_epoch == proposed.proposal.leader_epoch
}

fn request<'a>(
    me: NodeId,
    epoch: BrokerEpoch,
    pending: impl Iterator<Item = &'a Proposed>,
) -> AlterPartitionRequest {
    let mut topics: BTreeMap<TopicId, Vec<PartitionData>> = BTreeMap::new();
    for Proposed { partition, proposal } in pending {
        topics
            .entry(partition.id.topic)
            .or_default()
            .push(partition_data(partition.id.index, proposal));
    }
    AlterPartitionRequest::default()
        .with_broker_id(BrokerId(me.0))
        .with_broker_epoch(epoch.0)
        .with_topics(
            topics
                .into_iter()
                .map(|(topic, partitions)| {
                    TopicData::default().with_topic_id(topic.0).with_partitions(partitions)
                })
                .collect(),
        )
}

fn partition_data(index: i32, proposal: &IsrProposal) -> PartitionData {
    let isr = proposal.isr.iter().map(|(id, epoch)| {
        BrokerState::default().with_broker_id(BrokerId(id.0)).with_broker_epoch(epoch.0)
    });
    PartitionData::default()
        .with_partition_index(index)
        .with_leader_epoch(proposal.leader_epoch.0)
        .with_new_isr_with_epochs(isr.collect())
        .with_leader_recovery_state(match proposal.recovery {
            Recovery::Recovered => 0,
            Recovery::Recovering => 1,
        })
        .with_partition_epoch(proposal.partition_epoch.0)
}

/// What the controller's answer means to a leader (R11, R14 to R16).
fn outcome(answer: &Answered) -> Result<AlterPartitionOk, AlterPartitionError> {
    let Some(error) = answer.error_code.err() else {
        return Ok(AlterPartitionOk {
            leader_epoch: LeaderEpoch(answer.leader_epoch),
            partition_epoch: PartitionEpoch(answer.partition_epoch),
            isr: answer.isr.iter().map(|id| NodeId(id.0)).collect(),
            recovery: match answer.leader_recovery_state {
                1 => Recovery::Recovering,
                _ => Recovery::Recovered,
            },
        });
    };
    Err(match error {
        ResponseError::UnknownTopicOrPartition => AlterPartitionError::UnknownTopicOrPartition,
        ResponseError::UnknownTopicId => AlterPartitionError::UnknownTopicId,
        ResponseError::FencedLeaderEpoch => AlterPartitionError::FencedLeaderEpoch,
        ResponseError::InvalidUpdateVersion => AlterPartitionError::InvalidUpdateVersion,
        ResponseError::InvalidRequest => AlterPartitionError::InvalidRequest,
        ResponseError::NewLeaderElected => AlterPartitionError::NewLeaderElected,
        ResponseError::OperationNotAttempted => AlterPartitionError::OperationNotAttempted,
        ResponseError::IneligibleReplica => AlterPartitionError::IneligibleReplica,
        _ => AlterPartitionError::Other,
    })
}
