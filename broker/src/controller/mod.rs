//! The active controller: turns requests into decisions, and decisions into entries of the
//! metadata log. What is decided is pure and lies in `replication::controller`.
//!
//! | subject | module |
//! |---|---|
//! | the metadata log's state: the image, and a batch of records as one change | [`entry`] |
//! | asking for a decision | [`Controller`] |
//! | the loop of whoever leads the quorum: decisions, sessions (R27), sweeps (R29) | `active` |

mod active;
pub mod entry;

use replication::controller::World;
use replication::controller::sessions::Sessions;
use replication::metadata::Record;
use replication::types::Millis;
use thiserror::Error;
use tokio::sync::{mpsc, oneshot};

pub use active::{ActiveSettings, run};

/// What a decision may look at.
#[derive(Debug)]
pub struct Deciding<'a> {
    /// The metadata, with everything decided so far, and what the node's file says.
    pub world: World<'a>,
    /// Who was heard of when, and how far each has read.
    pub soft: &'a mut Soft,
    /// What time it is.
    pub now: Millis,
    /// The index of the last entry that `image` surely holds.
    pub index: i64,
}

/// What the active controller knows and no log holds.
#[derive(Debug)]
pub struct Soft {
    /// Last contacts, and how far each broker has read.
    pub sessions: Sessions,
    /// Spreads replicas; drawn anew by each active controller.
    pub placement_seed: u64,
}

/// What was decided: records for the log, and an answer that holds once they are in it.
#[derive(Debug)]
pub struct Decided<T> {
    /// In this order (R27, R28), all or none.
    pub records: Vec<Record>,
    /// For whoever asked.
    pub answer: T,
}

impl Soft {
    /// Another seed each time.
    pub const fn next_seed(&mut self) -> u64 {
        self.placement_seed = self.placement_seed.wrapping_add(1);
        self.placement_seed
    }
}

impl<T> Decided<T> {
    /// Nothing changes.
    pub const fn nothing(answer: T) -> Self {
        Self { records: Vec::new(), answer }
    }
}

/// Why there is no decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum NoDecision {
    /// Another one decides, or nobody does: nothing happened here.
    #[error("this node is not the active controller")]
    NotActive,
    /// It was decided, and whether it is in the log is not known.
    #[error("whether the decision is in the metadata log is not known")]
    Unknown,
}

type Complete = Box<dyn FnOnce(Result<i64, NoDecision>) + Send>;
type Decide = Box<dyn FnOnce(&mut Deciding<'_>) -> (Vec<Record>, Complete) + Send>;

/// A request for a decision, on its way to the active controller's loop.
pub struct Command(Decide);

/// Asks this node's controller. It decides only while it is the active one.
#[derive(Clone, Debug)]
pub struct Controller {
    commands: mpsc::Sender<Command>,
}

/// Requests that wait for a decision; more wait in their connections.
const QUEUE: usize = 1024;

impl Controller {
    /// A controller, and the commands for its loop ([`run`]).
    pub fn new() -> (Self, mpsc::Receiver<Command>) {
        let (commands, queue) = mpsc::channel(QUEUE);
        (Self { commands }, queue)
    }

    /// Lets `decide` decide, and waits until the log holds what it decided: its answer, and the
    /// index after which that is the case (of the last entry, if nothing changed).
    ///
    /// # Errors
    /// [`NoDecision`].
    pub async fn decide<T: Send + 'static>(
        &self,
        decide: impl FnOnce(&mut Deciding<'_>) -> Decided<T> + Send + 'static,
    ) -> Result<(T, i64), NoDecision> {
        let (told, answer) = oneshot::channel();
        let command = Command(Box::new(move |deciding| {
            let Decided { records, answer } = decide(deciding);
            let complete: Complete = Box::new(move |written| {
                // Whoever asked may have gone away.
                let _ = told.send(written.map(|index| (answer, index)));
            });
            (records, complete)
        }));
        self.commands.send(command).await.map_err(|_| NoDecision::NotActive)?;
        answer.await.unwrap_or(Err(NoDecision::NotActive))
    }
}

impl std::fmt::Debug for Command {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Command")
    }
}
