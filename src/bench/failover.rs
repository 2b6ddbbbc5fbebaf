//! From the SIGKILL of a leader to the next ok send to its partition.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use client::bench::{Beacon, BenchTopic};
use cluster::probe::{self, View};
use cluster::{Cluster, NodeName, NodeSpec};
use history::Key;
use serde::Serialize;
use serde_json::json;
use tokio::time::sleep;
use tracing::info;

use super::metric::{TIME_TO_LEADER_MS, TIME_TO_OK_MS};
use super::record::Numbers;
use super::schedule::{CONTROLLER, LEADER};
use super::stats::spread;

/// Longest time that a partition may go without an ok send.
const OUTAGE_LIMIT: Duration = Duration::from_secs(60);
/// Longest time that a killed broker may take to be back in every ISR.
const RETURN_LIMIT: Duration = Duration::from_secs(120);
/// Longest time to wait for a victim that is what it shall be.
const CHOICE_LIMIT: Duration = Duration::from_secs(10);
const BETWEEN_LOOKS: Duration = Duration::from_millis(50);

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
    let mut taken: BTreeMap<Victim, Vec<Strike>> = BTreeMap::new();
    let mut failed: Option<String> = None;
    let mut failures: BTreeMap<Victim, String> = BTreeMap::new();
    for victim in victims(kills) {
        let struck = match &failed {
            Some(reason) => Err(format!("an earlier kill failed: {reason}")),
            None => strike(cluster, topic, victim).await,
        };
        match struck {
            Ok(strike) => {
                info!(
                    "{} killed ({}): {:.0} ms until the next ok send",
                    strike.node,
                    victim.case(),
                    strike.time_to_ok_ms
                );
                taken.entry(victim).or_default().push(strike);
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

/// One kill, and how long it was felt.
#[derive(Clone, Debug, PartialEq, Serialize)]
struct Strike {
    node: NodeName,
    /// Whose leader it was.
    key: Key,
    /// From the signal to the first answer to a send that was made once the process was gone.
    time_to_ok_ms: f64,
    /// From the signal until a broker named another leader. What the client takes to find it, and
    /// to try again, comes on top.
    time_to_leader_ms: f64,
    /// From that answer until the node was back in every ISR.
    back_at_full_isr_ms: f64,
}

/// The median of the kills, and each of them; `None` where there were none.
fn numbers(strikes: &[Strike]) -> Option<Result<Numbers, String>> {
    let median = |pick: fn(&Strike) -> f64| {
        let times: Vec<f64> = strikes.iter().map(pick).collect();
        spread(&times).map(|spread| spread.median)
    };
    let values = [
        (TIME_TO_OK_MS, median(|strike| strike.time_to_ok_ms)?),
        (TIME_TO_LEADER_MS, median(|strike| strike.time_to_leader_ms)?),
    ];
    Some(Ok(Numbers::new(values).with(json!({ "kills": strikes }))))
}

async fn strike(cluster: &Cluster, topic: &BenchTopic, victim: Victim) -> Result<Strike, String> {
    let keys: Vec<Key> =
        (0..topic.partitions).map(|number| Key::new(&topic.name, number)).collect();
    probe::await_full_isr(cluster.nodes(), &keys, RETURN_LIMIT).await?;
    let (partition, node) = await_choice(cluster, &keys, victim).await?;
    let key = Key::new(&topic.name, partition);
    let words = |error: client::bench::BenchError| error.to_string();
    let beacon = Beacon::idempotent(topic.clone(), partition).await.map_err(words)?;
    beacon.next_ok(Instant::now(), OUTAGE_LIMIT).await.map_err(words)?;
    let struck = Instant::now();
    cluster.kill(node).await.map_err(|error| error.to_string())?;
    // Only what was sent to a dead leader shows that there is another one: before, the answer may
    // have been on its way.
    let gone = Instant::now();
    let (answered, led) =
        tokio::join!(beacon.next_ok(gone, OUTAGE_LIMIT), next_leader(cluster, &key, node));
    drop(beacon);
    cluster.start(node).await.map_err(|error| error.to_string())?;
    let (answered, led) = (answered.map_err(words)?, led?);
    probe::await_brokers(cluster.nodes(), RETURN_LIMIT).await?;
    probe::await_full_isr(cluster.nodes(), &keys, RETURN_LIMIT).await?;
    let ms = |time: Duration| time.as_secs_f64() * 1000.0;
    Ok(Strike {
        node,
        key,
        time_to_ok_ms: ms(answered - struck),
        time_to_leader_ms: ms(led - struck),
        back_at_full_isr_ms: ms(answered.elapsed()),
    })
}

/// Waits until a broker other than `dead` names another leader of `key`.
async fn next_leader(cluster: &Cluster, key: &Key, dead: NodeName) -> Result<Instant, String> {
    let alive: Vec<NodeSpec> =
        cluster.nodes().iter().filter(|node| node.name != dead).cloned().collect();
    let begun = Instant::now();
    loop {
        let view = probe::cluster_view(&alive, std::slice::from_ref(key)).await;
        let leader = view.keys.get(key).and_then(|seen| seen.leader);
        if leader.is_some_and(|leader| leader != dead) {
            return Ok(Instant::now());
        }
        if begun.elapsed() > OUTAGE_LIMIT {
            return Err(format!(
                "no broker named another leader of {key} within {} s",
                OUTAGE_LIMIT.as_secs()
            ));
        }
        sleep(BETWEEN_LOOKS).await;
    }
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
        let strikes = [3.0, 1.0, 2.0].map(|ms| Strike {
            node: NodeName::new(1),
            key: Key::new("t", 0),
            time_to_ok_ms: ms,
            time_to_leader_ms: ms / 2.0,
            back_at_full_isr_ms: 9.0,
        });
        let numbers = numbers(&strikes).unwrap().unwrap();
        let told = [TIME_TO_OK_MS, TIME_TO_LEADER_MS].map(|name| numbers.values[name].to_string());
        assert_eq!(told, ["2", "1"]);
        assert_eq!(numbers.details["kills"][1]["time_to_ok_ms"], 1.0);
        assert_eq!(numbers.details["kills"][2]["node"], "n1");
        assert!(super::numbers(&[]).is_none());
    }
}
