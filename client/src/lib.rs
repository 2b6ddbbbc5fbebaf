//! Kafka clients that record what they do.
//!
//! | module | subject |
//! |---|---|
//! | [`outcome`] | the one table: error code → ok, fail or info |
//! | `queue` | [`QueueClients`]: the phases of the workload `queue` |
//! | `sender`, `producer`, `room` | open-loop sends: the thread, a client, how many at once |
//! | `consumer`, `group`, `reader` | one consumer: its process, its group, its client |
//! | `closing`, `final_reads`, `committed` | the last phase |
//! | `by_hand` | [`Hand`]: sends and reads one by one, for scenarios |
//! | `journal`, `values`, `keys` | process numbers, values and keys, shared by all |
//! | `live` | [`LiveStats`] for whoever watches |
//! | `config`, `logs`, `graveyard`, `stop` | settings, log lines, and the end of clients |
//! | [`bench`] | load drivers that keep numbers instead of histories |
//!
//! librdkafka blocks, so clients run on threads of their own; the public functions are async
//! and only await them.

pub mod bench;
mod by_hand;
mod closing;
mod committed;
mod config;
mod consumer;
mod final_reads;
mod graveyard;
mod group;
mod journal;
mod keys;
mod live;
mod logs;
pub mod outcome;
mod producer;
mod queue;
mod reader;
mod room;
mod sender;
mod stop;
mod values;

pub use by_hand::{Hand, Sent};
pub use closing::{ClosingWrite, ClosingWrites};
pub use committed::SilentGroups;
pub use final_reads::UnreadKeys;
pub use live::{Counts, KeyProgress, LiveStats};
pub use queue::{ClientError, QueueClients, QueueSummary};
pub use stop::Stop;

/// The version of librdkafka that the clients run on, for the record.
pub fn librdkafka_version() -> String {
    rdkafka::util::get_rdkafka_version().1
}
