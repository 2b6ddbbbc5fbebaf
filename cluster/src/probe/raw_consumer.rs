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
use std::time::Duration;

use history::{Edges, FetchValue, Key, SERVED};
use kafka_protocol::ResponseError;
use kafka_protocol::messages::FetchResponse;

use super::connection::{Dialogue, ProbeError, within};
use super::fetches::{self, Asked, by_key};
use super::view::{METADATA_VERSIONS, metadata_request, read_metadata};
use crate::batches::read_batches;
use crate::error_name::error_name;
use crate::node::{NodeSpec, OBSERVER_PORT};

/// Most that one fetch asks for of a key: enough for the high watermark to lie in it, and no burden.
const MOST_BYTES: i32 = 16 * 1024;
/// Whoever is further behind goes on at the high watermark: that is what is looked at.
const MOST_BEHIND: i64 = 200;
/// No log grows by so much between two questions.
const FAR: i64 = 1 << 40;
const FAR_EPOCH: i32 = 1_000_000;

/// Reads at the high watermark of what one node leads.
#[derive(Debug, Default)]
pub struct RawConsumer {
    /// Where it reads on.
    positions: BTreeMap<Key, i64>,
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
                    *edge.of(&mut fetched.edges) = Some(told(data.error_code));
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
    let in_all = most_bytes.saturating_mul(i32::try_from(asked.len()).unwrap_or(1));
    dialogue
        .ask(fetches::VERSIONS, &fetches::request(asked.iter().copied(), most_bytes, in_all))
        .await
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

/// The name of an error code, or what stands for none.
fn told(code: i16) -> String {
    ResponseError::try_from_code(code).map_or_else(|| SERVED.to_owned(), error_name)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use kafka_protocol::messages::fetch_response::{FetchableTopicResponse, PartitionData};

    use super::*;
    use crate::batches::tests::{batch, mark};
    use crate::probe::view::topic_name;

    #[test]
    fn errors_have_the_names_that_kafka_gives_them() {
        assert_eq!(told(0), "NONE");
        assert_eq!(told(1), "OFFSET_OUT_OF_RANGE");
        assert_eq!(told(74), "FENCED_LEADER_EPOCH");
        assert_eq!(told(75), "UNKNOWN_LEADER_EPOCH");
    }

    #[test]
    fn what_was_refused_is_left_out_and_the_rest_is_told_with_its_batches() {
        let node = NodeSpec::sample(2, Path::new("/n2"));
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
