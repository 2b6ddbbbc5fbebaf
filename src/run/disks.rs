//! After a run: the nodes are stopped, and what their disks hold is recorded, for the checkers that
//! compare replicas. Batches that the same nodes hold are recorded once.

use std::collections::BTreeMap;
use std::io;
use std::time::{Duration, Instant};

use cluster::{Cluster, NodeSpec, ReplicaLog, Signal};
use futures_util::future::join_all;
use history::{BatchMark, DISK, Draft, Key, LOG, LogValue, Process, Record};
use serde_json::json;
use tracing::{info, warn};

/// A node that has not stopped by then is killed: what it has written is read all the same. The last
/// of a quorum of Kafka's cannot be let go by anybody, and would wait for minutes.
const STOP_LIMIT: Duration = Duration::from_secs(8);
/// Most batches of one event.
const MOST_BATCHES: usize = 400;

/// Stops all nodes, those that vote last, so that brokers are let go.
pub(super) async fn stop_all(cluster: &Cluster) {
    let (voters, brokers): (Vec<&NodeSpec>, Vec<&NodeSpec>) =
        cluster.nodes().iter().partition(|node| node.role.is_controller());
    for group in [brokers, voters] {
        join_all(group.into_iter().map(|node| stop(cluster, node))).await;
    }
}

async fn stop(cluster: &Cluster, node: &NodeSpec) {
    let begun = Instant::now();
    if let Err(error) = cluster.backend().signal(node.name, Signal::Term).await {
        return warn!("{}: not stopped before its disk is read: {error}", node.name);
    }
    match cluster.backend().wait_exit(node.name, STOP_LIMIT).await {
        Ok(_) => info!("{} stopped after {:.1} s", node.name, begun.elapsed().as_secs_f64()),
        Err(error) => {
            warn!("{}: {error}; it is killed", node.name);
            if let Err(error) = cluster.kill(node.name).await {
                warn!("{}: not killed: {error}", node.name);
            }
        }
    }
}

/// Records every replica of `keys` on the disks of `nodes`.
pub(super) fn record(nodes: &[NodeSpec], keys: &[Key], recorder: &dyn Record) {
    for key in keys {
        if let Err(error) = record_key(nodes, key, recorder) {
            warn!("{key}: its replicas cannot be read from disk: {error}");
        }
    }
}

fn record_key(nodes: &[NodeSpec], key: &Key, recorder: &dyn Record) -> io::Result<()> {
    let mut logs = Vec::new();
    for node in nodes.iter().filter(|node| node.role.is_broker()) {
        logs.extend(ReplicaLog::open(node, key)?);
    }
    let mut heads = Vec::new();
    for log in &mut logs {
        heads.push(log.next_batch()?);
    }
    let mut chunk = Chunk { key, held: Vec::new(), batches: Vec::new(), recorder };
    while let Some(lowest) = heads.iter().flatten().min_by_key(|mark| mark.first).copied() {
        // Those that begin at this offset, each kind for itself: they need not be the same.
        let mut kinds: BTreeMap<BatchMark, Vec<usize>> = BTreeMap::new();
        for (at, head) in heads.iter().enumerate() {
            if let Some(mark) = head.filter(|mark| mark.first == lowest.first) {
                kinds.entry(mark).or_default().push(at);
            }
        }
        for (mark, held) in kinds {
            for at in &held {
                if let (Some(log), Some(head)) = (logs.get_mut(*at), heads.get_mut(*at)) {
                    *head = log.next_batch()?;
                }
            }
            let names = held.iter().filter_map(|at| Some(logs.get(*at)?.replica.node.clone()));
            chunk.add(names.collect(), mark);
        }
    }
    chunk.end();
    for log in logs {
        recorder.record(Draft::note(Process::Observer, DISK, json!(log.replica)));
    }
    Ok(())
}

/// Batches on the same disks, until they are recorded.
struct Chunk<'a> {
    key: &'a Key,
    held: Vec<String>,
    batches: Vec<BatchMark>,
    recorder: &'a dyn Record,
}

impl Chunk<'_> {
    fn add(&mut self, held: Vec<String>, mark: BatchMark) {
        if self.held != held || self.batches.len() >= MOST_BATCHES {
            self.end();
            self.held = held;
        }
        self.batches.push(mark);
    }

    fn end(&mut self) {
        let batches = std::mem::take(&mut self.batches);
        if !batches.is_empty() {
            let value = LogValue { key: self.key.to_string(), nodes: self.held.clone(), batches };
            self.recorder.record(Draft::note(Process::Observer, LOG, json!(value)));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    #[derive(Default)]
    struct Kept(Mutex<Vec<String>>);

    impl Record for Kept {
        fn record(&self, draft: Draft) -> u64 {
            self.0.lock().unwrap().push(format!("{:?}", draft.value));
            0
        }

        fn now_ns(&self) -> u64 {
            0
        }
    }

    #[test]
    fn a_change_of_holders_begins_a_new_event() {
        let kept = Kept::default();
        let key = Key::from("t-0");
        let mut chunk = Chunk { key: &key, held: Vec::new(), batches: Vec::new(), recorder: &kept };
        let mark = |first| BatchMark { first, last: first, epoch: 0, crc: 0 };
        let both = || vec!["n1".to_owned(), "n2".to_owned()];
        chunk.add(both(), mark(0));
        chunk.add(both(), mark(1));
        chunk.add(vec!["n1".to_owned()], mark(2));
        chunk.end();
        chunk.end();
        let kept = kept.0.into_inner().unwrap();
        assert_eq!(kept.len(), 2, "{kept:?}");
    }
}
