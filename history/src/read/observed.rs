//! The observer's events, each into its column of the history.

use serde::de::DeserializeOwned;
use serde_json::Value as Json;

use super::line::LineError;
use crate::commits::{At, COMMIT, COMMITTED};
use crate::fetched::{FETCH, FetchValue, Fetched};
use crate::on_disk::{DISK, DiskValue, LOG, LogValue, OnDisk, Stored};
use crate::operations::{History, Note};
use crate::probe::{PROBE, Probe, ProbeValue};
use crate::promise::{EXEMPT, PROMISE};

/// The observer's `f` for its looks at a cluster that should have recovered.
const RECOVERY: &str = "recovery";

/// Every `f` of the observer's that somebody here understands. Of others nothing is kept.
pub(super) const UNDERSTOOD: [&str; 9] =
    [RECOVERY, PROBE, FETCH, DISK, LOG, COMMIT, COMMITTED, PROMISE, EXEMPT];

/// Takes an event of the observer's in.
///
/// # Errors
/// Its value is not what its `f` says.
pub(super) fn take(
    history: &mut History,
    function: &str,
    (index, time_ns): (u64, u64),
    value: &Json,
) -> Result<(), LineError> {
    let names = &mut history.probed;
    match function {
        RECOVERY => history.recovery.push(Note {
            index,
            time_ns,
            function: function.to_owned(),
            value: value.clone(),
        }),
        PROBE => {
            let seen: ProbeValue = read(value, "what a probe saw of a replica")?;
            history.probes.push(Probe {
                index,
                answered_ns: time_ns,
                asked_ns: seen.asked_ns,
                node: names.intern(&seen.node),
                id: seen.id,
                key: names.intern(&seen.key),
                topic_id: names.intern(&seen.topic_id),
                leads: seen.leads,
                state: seen.state,
            });
        }
        FETCH => {
            let value: FetchValue = read(value, "what a raw consumer got")?;
            history.fetches.push(Fetched {
                index,
                answered_ns: time_ns,
                node: names.intern(&value.node),
                key: names.intern(&value.key),
                value,
            });
        }
        DISK => {
            let value: DiskValue = read(value, "a replica on a disk")?;
            let (node, key) = (names.intern(&value.node), names.intern(&value.key));
            history.disks.push(OnDisk { index, node, key, value });
        }
        LOG => {
            let value: LogValue = read(value, "batches on disks")?;
            history.stored.push(Stored {
                index,
                key: names.intern(&value.key),
                nodes: value.nodes.iter().map(|node| names.intern(node)).collect(),
                batches: value.batches,
            });
        }
        COMMIT => {
            let value = read(value, "a commit of a group")?;
            history.commits.push(At { index, time_ns, value });
        }
        COMMITTED => {
            let value = read(value, "where a group would go on")?;
            history.committed.push(At { index, time_ns, value });
        }
        PROMISE => history.promise = read(value, "what acknowledgements promise")?,
        EXEMPT => history.exempt.push(read(value, "values that are promised less")?),
        _ => {}
    }
    Ok(())
}

fn read<T: DeserializeOwned>(value: &Json, what: &str) -> Result<T, LineError> {
    T::deserialize(value).map_err(|error| LineError::new(what, error.to_string()))
}
