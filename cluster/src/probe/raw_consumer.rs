//! A consumer without the comfort of a client library: what a leader serves, with the high watermark
//! in that very answer, and what it says to questions at the edge, which no leader may serve.
//!
//! | question | what a leader owes |
//! |---|---|
//! | a fetch where the last one ended | records below the high watermark beside them (R34) |
//! | the same in the leader epoch before | `FENCED_LEADER_EPOCH` (R31) |
//! | the same in an epoch that is still to come | `UNKNOWN_LEADER_EPOCH` (R31) |
//! | a fetch far beyond the log's end | `OFFSET_OUT_OF_RANGE` |
//!
//! All go over one connection, so that one process answers, in this order.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::time::Duration;

use history::{Edges, FetchValue, Key};
use kafka_protocol::ResponseError;
use kafka_protocol::messages::fetch_request::{FetchPartition, FetchTopic};
use kafka_protocol::messages::fetch_response::PartitionData;
use kafka_protocol::messages::{BrokerId, FetchRequest, FetchResponse};

use super::connection::{Dialogue, ProbeError, within};
use super::view::{METADATA_VERSIONS, metadata_request, read_metadata, topic_name};
use crate::batches::read_batches;
use crate::node::{NodeSpec, OBSERVER_PORT};

/// From 9 on a fetch names the leader epoch; from 13 on topics go by their ids.
const FETCH_VERSIONS: RangeInclusive<i16> = 11..=12;
const CONSUMER: BrokerId = BrokerId(-1);
/// Most that one fetch asks for of a key: enough for the high watermark to lie in it, and no burden.
const MOST_BYTES: i32 = 16 * 1024;
/// Whoever is further behind goes on at the high watermark: that is what is looked at.
const MOST_BEHIND: i64 = 200;
/// No log grows by so much between two questions.
const FAR: i64 = 1 << 40;
const FAR_EPOCH: i32 = 1_000_000;
/// What stands for an answer without an error.
const SERVED: &str = "NONE";

/// Reads at the high watermark of what one node leads.
#[derive(Debug, Default)]
pub struct RawConsumer {
    /// Where it reads on.
    positions: BTreeMap<Key, i64>,
}

/// A key, the leader epoch in which it is asked for, and from where.
struct Asked<'a> {
    key: &'a Key,
    leader_epoch: i32,
    from: i64,
}

impl RawConsumer {
    /// Fetches once from each of `keys` that `node` leads. Those that it refuses, because it leads
    /// them no more or in another epoch, are left out.
    ///
    /// # Errors
    /// No answer within `limit`, or one that cannot be read.
    pub async fn fetch(
        &mut self,
        node: &NodeSpec,
        keys: &[Key],
        limit: Duration,
    ) -> Result<Vec<FetchValue>, ProbeError> {
        let fetched = within(node.address, OBSERVER_PORT, limit, self.exchange(node, keys)).await?;
        for one in &fetched {
            let next = one.batches.last().map_or(one.from, |batch| batch.last + 1);
            let behind = one.high_watermark - next > MOST_BEHIND;
            let next = if behind { one.high_watermark } else { next };
            self.positions.insert(Key::from(one.key.as_str()), next.max(one.log_start));
        }
        Ok(fetched)
    }

    async fn exchange(&self, node: &NodeSpec, keys: &[Key]) -> Result<Vec<FetchValue>, ProbeError> {
        let mut dialogue = Dialogue::open(node.address, OBSERVER_PORT).await?;
        let seen = dialogue.ask(METADATA_VERSIONS, &metadata_request(keys)).await?;
        let views = read_metadata(&seen).keys;
        let led = views.iter().filter(|(_, view)| view.leader == Some(node.name));
        let mut asked: Vec<Asked<'_>> = led
            .map(|(key, view)| Asked {
                key,
                leader_epoch: view.leader_epoch,
                from: self.positions.get(key).copied().unwrap_or(0),
            })
            .collect();
        if asked.is_empty() {
            return Ok(Vec::new());
        }
        let mut served = served(&ask(&mut dialogue, &asked, MOST_BYTES).await?, node, &asked);
        asked.retain(|one| served.contains_key(one.key));
        if asked.is_empty() {
            return Ok(Vec::new());
        }
        // It has answered in this epoch: from now on it is in this one or a later one.
        let at = |epoch: i32, further: i64| {
            let shifted = asked.iter().filter(move |one| one.leader_epoch + epoch >= 0);
            shifted.map(move |one| Asked {
                leader_epoch: one.leader_epoch + epoch,
                from: one.from + further,
                ..*one
            })
        };
        let older: Vec<Asked<'_>> = at(-1, 0).collect();
        let newer: Vec<Asked<'_>> = at(FAR_EPOCH, 0).collect();
        let beyond: Vec<Asked<'_>> = at(0, FAR).collect();
        for (edge, asked) in [(Edge::Older, older), (Edge::Newer, newer), (Edge::Beyond, beyond)] {
            if asked.is_empty() {
                continue;
            }
            for (key, data) in by_key(&ask(&mut dialogue, &asked, 1).await?) {
                if let Some(fetched) = served.get_mut(&key) {
                    *edge.of(&mut fetched.edges) = Some(error_name(data.error_code));
                }
            }
        }
        Ok(served.into_values().collect())
    }
}

#[derive(Clone, Copy)]
enum Edge {
    Older,
    Newer,
    Beyond,
}

impl Edge {
    const fn of(self, edges: &mut Edges) -> &mut Option<String> {
        match self {
            Self::Older => &mut edges.older_epoch,
            Self::Newer => &mut edges.newer_epoch,
            Self::Beyond => &mut edges.beyond_end,
        }
    }
}

async fn ask(
    dialogue: &mut Dialogue,
    asked: &[Asked<'_>],
    most_bytes: i32,
) -> Result<FetchResponse, ProbeError> {
    let mut topics: BTreeMap<&str, Vec<FetchPartition>> = BTreeMap::new();
    for one in asked {
        let Some((topic, partition)) = one.key.split() else { continue };
        topics.entry(topic).or_default().push(
            FetchPartition::default()
                .with_partition(partition)
                .with_current_leader_epoch(one.leader_epoch)
                .with_fetch_offset(one.from)
                .with_partition_max_bytes(most_bytes),
        );
    }
    let topics = topics.into_iter().map(|(name, partitions)| {
        FetchTopic::default().with_topic(topic_name(name)).with_partitions(partitions)
    });
    let request = FetchRequest::default()
        .with_replica_id(CONSUMER)
        .with_max_wait_ms(0)
        .with_min_bytes(0)
        .with_max_bytes(most_bytes.saturating_mul(i32::try_from(asked.len()).unwrap_or(1)))
        .with_session_epoch(-1)
        .with_topics(topics.collect());
    dialogue.ask(FETCH_VERSIONS, &request).await
}

fn by_key(answer: &FetchResponse) -> impl Iterator<Item = (Key, &PartitionData)> {
    let topics = answer.responses.iter();
    topics
        .flat_map(|topic| topic.partitions.iter().map(|data| (topic.topic.0.as_str(), data)))
        .map(|(topic, data)| (Key::new(topic, data.partition_index), data))
}

/// What was served without an error. The question's time is filled in by whoever records it.
fn served(
    answer: &FetchResponse,
    node: &NodeSpec,
    asked: &[Asked<'_>],
) -> BTreeMap<Key, FetchValue> {
    by_key(answer)
        .filter(|(_, data)| data.error_code == 0)
        .filter_map(|(key, data)| {
            let asked = asked.iter().find(|one| *one.key == key)?;
            let fetched = FetchValue {
                node: node.name.to_string(),
                key: key.to_string(),
                asked_ns: 0,
                leader_epoch: asked.leader_epoch,
                from: asked.from,
                high_watermark: data.high_watermark,
                last_stable: data.last_stable_offset,
                log_start: data.log_start_offset,
                batches: data.records.as_deref().map(read_batches).unwrap_or_default(),
                edges: Edges::default(),
            };
            Some((key, fetched))
        })
        .collect()
}

/// The name that Kafka gives an error code: `OFFSET_OUT_OF_RANGE`; `NONE` for none.
fn error_name(code: i16) -> String {
    let Some(error) = ResponseError::try_from_code(code) else {
        return SERVED.to_owned();
    };
    let mut name = String::new();
    for letter in format!("{error:?}").chars() {
        if letter.is_ascii_uppercase() && !name.is_empty() {
            name.push('_');
        }
        name.push(letter.to_ascii_uppercase());
    }
    name
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use kafka_protocol::messages::fetch_response::FetchableTopicResponse;

    use super::*;
    use crate::batches::tests::{batch, mark};
    use crate::node::{NodeName, Role};

    #[test]
    fn errors_have_the_names_that_kafka_gives_them() {
        assert_eq!(error_name(0), "NONE");
        assert_eq!(error_name(1), "OFFSET_OUT_OF_RANGE");
        assert_eq!(error_name(74), "FENCED_LEADER_EPOCH");
        assert_eq!(error_name(75), "UNKNOWN_LEADER_EPOCH");
    }

    #[test]
    fn what_was_refused_is_left_out_and_the_rest_is_told_with_its_batches() {
        let node = NodeSpec {
            name: NodeName::new(2),
            role: Role::Broker,
            address: Ipv4Addr::LOCALHOST,
            dir: "/n2".into(),
        };
        let keys = ["t-0", "t-1"].map(Key::from);
        let asked = keys.each_ref().map(|key| Asked { key, leader_epoch: 3, from: 7 });
        let records = batch(mark(6, 9, 3, 5), 4);
        let data = |index, code| {
            PartitionData::default()
                .with_partition_index(index)
                .with_error_code(code)
                .with_high_watermark(8)
                .with_records(Some(records.clone().into()))
        };
        let topic = FetchableTopicResponse::default()
            .with_topic(topic_name("t"))
            .with_partitions(vec![data(0, 0), data(1, 6)]);
        let answer = FetchResponse::default().with_responses(vec![topic]);
        let served = served(&answer, &node, &asked);
        let fetched: Vec<_> = served.values().collect();
        let [fetched] = &fetched[..] else { panic!("{fetched:?}") };
        assert_eq!((fetched.node.as_str(), fetched.key.as_str()), ("n2", "t-0"));
        assert_eq!((fetched.leader_epoch, fetched.from, fetched.high_watermark), (3, 7, 8));
        assert_eq!(fetched.batches, [mark(6, 9, 3, 5)]);
    }
}
