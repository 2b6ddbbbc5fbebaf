//! Where groups would go on, asked once all is healed.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use history::{COMMITTED, CommittedValue};
use rdkafka::consumer::{BaseConsumer, Consumer as _};
use rdkafka::error::KafkaResult;
use rdkafka::{Offset, TopicPartitionList};
use serde_json::json;

use crate::config;
use crate::consumer::Setting;
use crate::group::COMMITTED_LIMIT;
use crate::queue::{ClientError, QueueClients, on_thread};
use crate::stop::Stop;

/// How long to wait before a group is asked again whose coordinator did not answer.
const RETRY_AFTER: Duration = Duration::from_millis(500);

/// Groups that did not say where they would go on, and why.
pub type SilentGroups = BTreeMap<String, String>;

impl QueueClients {
    /// Asks for every group of the run where it would go on, and records the answers; of nobody where
    /// nothing was ever committed. Stops at `limit` or `stop`. Returns the groups that did not say.
    ///
    /// # Errors
    /// A thread cannot be started or panicked. A cluster that does not answer is a result, not an error.
    pub async fn committed(
        &self,
        limit: Duration,
        stop: &Stop,
    ) -> Result<SilentGroups, ClientError> {
        if !self.setting.journal.has_commits() {
            return Ok(SilentGroups::new());
        }
        let (setting, stop) = (self.setting.clone(), stop.clone());
        on_thread("committed", move || ask_all(&setting, Instant::now() + limit, &stop))?
            .joined()
            .await
    }
}

fn ask_all(setting: &Setting, until: Instant, stop: &Stop) -> SilentGroups {
    let plan = &setting.plan;
    let groups: BTreeSet<String> =
        (0..plan.consumers).map(|number| plan.consumer.group_of(number)).collect();
    let mut silent = SilentGroups::new();
    for group in groups {
        loop {
            let asked_ns = setting.journal.now_ns();
            match ask(setting, &group) {
                Ok(offsets) => {
                    let value = CommittedValue { group, asked_ns, offsets };
                    setting.journal.observe(COMMITTED, json!(value));
                    break;
                }
                Err(error) if Instant::now() + RETRY_AFTER >= until || stop.wait(RETRY_AFTER) => {
                    silent.insert(group, error.to_string());
                    break;
                }
                Err(error) => tracing::debug!(group, %error, "asks again for what is committed"),
            }
        }
    }
    silent
}

fn ask(setting: &Setting, group: &str) -> KafkaResult<BTreeMap<String, Option<i64>>> {
    let plan = &setting.plan.consumer;
    let config = config::consumer(plan, &setting.bootstrap, "highwater-committed", group, None);
    // A client without membership: it asks, and takes part in nothing.
    let client: BaseConsumer = config.create()?;
    let mut list = TopicPartitionList::new();
    for target in setting.keys.all() {
        list.add_partition(&target.topic, target.partition);
    }
    let committed = client.committed_offsets(list, COMMITTED_LIMIT)?;
    let elements = committed.elements();
    elements
        .iter()
        .map(|element| {
            element.error()?;
            let offset = match element.offset() {
                Offset::Offset(offset) => Some(offset),
                _ => None,
            };
            let key = setting.keys.key(element.topic(), element.partition());
            Ok((key.to_string(), offset))
        })
        .collect()
}
