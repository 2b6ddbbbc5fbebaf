//! From the SIGKILL of a leader to the next ok send to its partition.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use client::bench::{Beacon, BenchTopic};
use cluster::probe::{self, View};
use cluster::{Cluster, NodeName};
use history::Key;
use serde_json::{Value, json};
use tokio::time::sleep;
use tracing::info;

use super::metric::TIME_TO_OK_MS;
use super::record::Numbers;
use super::schedule::{CONTROLLER, LEADER};
use super::stats::spread;

/// Longest time that a partition may go without an ok send.
const OUTAGE_LIMIT: Duration = Duration::from_secs(60);
/// Longest time that a killed broker may take to be back in every ISR.
const RETURN_LIMIT: Duration = Duration::from_secs(120);
/// Longest time to wait for a victim that is what it shall be.
const CHOICE_LIMIT: Duration = Duration::from_secs(10);
const BETWEEN_LOOKS: Duration = Duration::from_millis(200);

/// Whom a kill shall strike.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Victim {
    /// A leader that does not lead the metadata quorum.
    Leader,
    /// One that does: the quorum must find itself a leader first.
    Controller,
}

impl Victim {
    const fn case(self) -> &'static str {
        match self {
            Self::Leader => LEADER,
            Self::Controller => CONTROLLER,
        }
    }
}

/// The victims of one turn, in order: the controller last, so that the quorum is at peace before.
fn victims(kills: u32) -> impl Iterator<Item = Victim> {
    (1..=kills).map(
        move |kill| {
            if kill == kills && kills > 1 { Victim::Controller } else { Victim::Leader }
        },
    )
}

/// Kills one leader of `topic` after the other, each started again and back in every ISR before
/// the next; by case, what was seen. The topic must exist.
pub(super) async fn failover(
    cluster: &Cluster,
    topic: &BenchTopic,
    kills: u32,
) -> BTreeMap<String, Result<Numbers, String>> {
    let mut taken: BTreeMap<Victim, Vec<(f64, Value)>> = BTreeMap::new();
    let mut failed: Option<String> = None;
    let mut failures: BTreeMap<Victim, String> = BTreeMap::new();
    for victim in victims(kills) {
        let struck = match &failed {
            Some(reason) => Err(format!("an earlier kill failed: {reason}")),
            None => strike(cluster, topic, victim).await,
        };
        match struck {
            Ok((time_to_ok_ms, details)) => {
                info!("failover ({}): {time_to_ok_ms:.0} ms", victim.case());
                taken.entry(victim).or_default().push((time_to_ok_ms, details));
            }
            Err(reason) => {
                failures.entry(victim).or_insert_with(|| reason.clone());
                failed.get_or_insert(reason);
            }
        }
    }
    [Victim::Leader, Victim::Controller]
        .into_iter()
        .filter_map(|victim| {
            let kills = taken.remove(&victim).unwrap_or_default();
            let result = match failures.remove(&victim) {
                Some(reason) => Err(reason),
                None => numbers(&kills)?,
            };
            Some((victim.case().to_owned(), result))
        })
        .collect()
}

/// The median of the kills, and each of them; `None` where there were none.
fn numbers(kills: &[(f64, Value)]) -> Option<Result<Numbers, String>> {
    let times: Vec<f64> = kills.iter().map(|(time_to_ok_ms, _)| *time_to_ok_ms).collect();
    let details: Vec<&Value> = kills.iter().map(|(_, details)| details).collect();
    let median = spread(&times)?.median;
    Some(Ok(Numbers::new([(TIME_TO_OK_MS, median)]).with(json!({ "kills": details }))))
}

/// One kill; how long it was felt, in milliseconds, and what was done.
async fn strike(
    cluster: &Cluster,
    topic: &BenchTopic,
    victim: Victim,
) -> Result<(f64, Value), String> {
    let keys: Vec<Key> =
        (0..topic.partitions).map(|number| Key::new(&topic.name, number)).collect();
    probe::await_full_isr(cluster.nodes(), &keys, RETURN_LIMIT).await?;
    let (partition, node) = await_choice(cluster, &keys, victim).await?;
    let words = |error: client::bench::BenchError| error.to_string();
    let beacon = Beacon::idempotent(topic.clone(), partition).await.map_err(words)?;
    beacon.next_ok(Instant::now(), OUTAGE_LIMIT).await.map_err(words)?;
    let struck = Instant::now();
    cluster.kill(node).await.map_err(|error| error.to_string())?;
    // Only what was sent to a dead leader shows that there is another one: before, the answer may
    // have been on its way.
    let gone = Instant::now();
    let outage = beacon.next_ok(gone, OUTAGE_LIMIT).await.map_err(words);
    drop(beacon);
    cluster.start(node).await.map_err(|error| error.to_string())?;
    let ok = outage?;
    probe::await_brokers(cluster.nodes(), RETURN_LIMIT).await?;
    probe::await_full_isr(cluster.nodes(), &keys, RETURN_LIMIT).await?;
    let time_to_ok_ms = (ok - struck).as_secs_f64() * 1000.0;
    let details = json!({
        "node": node,
        "key": keys.get(usize::try_from(partition).unwrap_or_default()),
        "was_controller": victim == Victim::Controller,
        TIME_TO_OK_MS: time_to_ok_ms,
        "back_at_full_isr_ms": ok.elapsed().as_secs_f64() * 1000.0,
    });
    Ok((time_to_ok_ms, details))
}

async fn await_choice(
    cluster: &Cluster,
    keys: &[Key],
    victim: Victim,
) -> Result<(i32, NodeName), String> {
    let begun = Instant::now();
    loop {
        let view = probe::cluster_view(cluster.nodes(), keys).await;
        match choose(&view, keys, victim) {
            Ok(choice) => return Ok(choice),
            Err(reason) if begun.elapsed() > CHOICE_LIMIT => return Err(reason),
            Err(_) => sleep(BETWEEN_LOOKS).await,
        }
    }
}

/// The first of `keys` whose leader is such a victim.
fn choose(view: &View, keys: &[Key], victim: Victim) -> Result<(i32, NodeName), String> {
    let Some(controller) = view.controller else {
        return Err("nobody says who leads the metadata quorum".to_owned());
    };
    keys.iter()
        .find_map(|key| {
            let leader = view.keys.get(key)?.leader?;
            let fits = (leader == controller) == (victim == Victim::Controller);
            fits.then_some((key.split()?.1, leader))
        })
        .ok_or_else(|| {
            let whom = if victim == Victim::Controller { "the" } else { "another node than the" };
            format!(
                "no partition of the topic is led by {whom} controller, {controller}; more \
                 --partitions help"
            )
        })
}

#[cfg(test)]
mod tests {
    use cluster::probe::PartitionView;

    use super::*;

    fn view(controller: Option<u32>, leaders: &[u32]) -> (View, Vec<Key>) {
        let keys: Vec<Key> = (0..).take(leaders.len()).map(|n| Key::new("t", n)).collect();
        let seen = keys.iter().cloned().zip(leaders.iter().map(|id| PartitionView {
            leader: Some(NodeName::new(*id)),
            ..PartitionView::default()
        }));
        let view = View {
            controller: controller.map(NodeName::new),
            keys: seen.collect(),
            ..View::default()
        };
        (view, keys)
    }

    #[test]
    fn the_controller_is_struck_last_and_only_where_there_are_several_kills() {
        let told = |kills| victims(kills).map(Victim::case).collect::<Vec<_>>();
        assert_eq!(told(3), [LEADER, LEADER, CONTROLLER]);
        assert_eq!(told(1), [LEADER]);
        assert_eq!(told(0), [""; 0]);
    }

    #[test]
    fn a_victim_is_a_leader_that_is_or_is_not_the_controller() {
        let (seen, keys) = view(Some(2), &[2, 3, 1]);
        assert_eq!(choose(&seen, &keys, Victim::Leader), Ok((1, NodeName::new(3))));
        assert_eq!(choose(&seen, &keys, Victim::Controller), Ok((0, NodeName::new(2))));
        let (seen, keys) = view(Some(1), &[2, 3]);
        let reason = choose(&seen, &keys, Victim::Controller).unwrap_err();
        assert!(reason.contains("led by the controller, n1"), "{reason}");
        let (seen, keys) = view(None, &[2, 3]);
        assert!(choose(&seen, &keys, Victim::Leader).unwrap_err().contains("nobody says"));
    }

    #[test]
    fn several_kills_come_to_their_median_and_none_to_nothing() {
        let kills = [3.0, 1.0, 2.0].map(|ms| (ms, json!({ "node": "n1" })));
        let numbers = numbers(&kills).unwrap().unwrap();
        assert_eq!(numbers.values[TIME_TO_OK_MS].to_bits(), 2.0_f64.to_bits());
        assert_eq!(numbers.details["kills"].as_array().unwrap().len(), 3);
        assert!(super::numbers(&[]).is_none());
    }
}
