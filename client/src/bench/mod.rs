//! Load drivers for `highwater bench`: librdkafka at full speed or at a fixed rate. They keep
//! numbers, not histories.
//!
//! | module | subject |
//! |---|---|
//! | `full_speed` | [`produce`]: as many acknowledged records as go in a given time |
//! | `read_back` | [`consume`]: reading all of a topic |
//! | `paced` | [`latency`]: a fixed rate, from the send to the acknowledgement and to the read |
//! | `beacon` | [`Beacon`]: one send after the other to one partition, and when one is ok again |
//! | `polled`, `window` | a producer and the thread of its reports, and how much it may have open |
//! | `settings` | [`client_settings`]: what librdkafka is told |
//! | `payload`, `quantiles` | what records hold, and how latencies are kept |
//!
//! Every function works on threads of its own, ends by a deadline of its own, and is given up when
//! its future is dropped. Clocks are the monotonic one of this process: producer and consumer
//! share it, so that no clocks need be compared.

mod beacon;
mod full_speed;
mod paced;
mod payload;
mod polled;
mod quantiles;
mod read_back;
mod settings;
mod window;

use std::time::Duration;

use thiserror::Error;

pub use beacon::Beacon;
pub use full_speed::{Full, Produced, produce};
pub use paced::{Pace, Paced, latency};
pub use quantiles::Quantiles;
pub use read_back::{Consumed, ReadBack, consume};
pub use settings::client_settings;

use crate::graveyard::Graveyard;
use crate::queue::{ClientError, on_thread};
use crate::stop::Stop;

/// How long a client that is done may take to say good-bye, before the next is started beside it.
const GOOD_BYE_LIMIT: Duration = Duration::from_secs(5);

/// Why a measurement has no result. Split by what the caller can do.
#[derive(Debug, Error)]
pub enum BenchError {
    /// The driver itself cannot work here: no thread, or settings that librdkafka refuses.
    #[error(transparent)]
    Driver(#[from] ClientError),
    /// The cluster refused, or did not do in time what was asked of it.
    #[error("{0}")]
    Cluster(String),
}

/// What is written to or read from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BenchTopic {
    /// Where clients connect, `host:port,…`.
    pub bootstrap: String,
    /// The topic. It must exist.
    pub name: String,
    /// How many partitions it has; all are used.
    pub partitions: i32,
}

/// Stops the work of a thread once nobody waits for its result.
struct StopOnDrop(Stop);

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        self.0.stop();
    }
}

/// Runs `work` on a thread, with what tells it to stop: it does when this future is dropped.
async fn driven<T: Send + 'static>(
    name: &str,
    work: impl FnOnce(&Stop) -> Result<T, BenchError> + Send + 'static,
) -> Result<T, BenchError> {
    let guard = StopOnDrop(Stop::new());
    let stop = guard.0.clone();
    let result = on_thread(name, move || work(&stop))?.joined().await?;
    drop(guard);
    result
}

/// Drops a client and waits until it is gone, so that it does not disturb what is measured next.
fn part_with<T: Send + 'static>(client: T) {
    let graveyard = Graveyard::default();
    graveyard.bury(client);
    if graveyard.wait(GOOD_BYE_LIMIT) > 0 {
        tracing::debug!("a client of the bench takes long to end; it is not waited for");
    }
}

fn refused_settings(client: &'static str) -> impl Fn(rdkafka::error::KafkaError) -> BenchError {
    move |reason| BenchError::Driver(ClientError::Settings { client, reason })
}

/// What is said of work that was given up because nobody waits for it any more.
fn given_up() -> BenchError {
    BenchError::Cluster("given up before it was done".to_owned())
}
