//! The loop of the active controller. One decision after the other, over an image that holds all
//! decisions before it; several go into one entry of the log.

use std::sync::Arc;
use std::time::Duration;

use replication::controller::sessions::Sessions;
use replication::controller::{World, election, fencing};
use replication::metadata::settings::Defaults;
use replication::metadata::{Image, Record};
use replication::seeded::Bug;
use tokio::sync::mpsc;
use tokio::time::{Instant, interval_at, sleep};
use tracing::{debug, info, warn};

use crate::controller::entry::{Entry, Metadata};
use crate::controller::{Command, Complete, Deciding, NoDecision, Soft};
use crate::quorum::{Quorum, WriteError};
use crate::replica::clock;

/// Decisions that go into one entry.
const MOST_IN_ENTRY: usize = 256;
/// Records a sweep may make (R29).
const MOST_ELECTIONS: usize = 1000;
/// How often sessions are looked at.
const SESSION_TICK: Duration = Duration::from_millis(100);

/// What the active controller is told.
#[derive(Clone, Debug)]
pub struct ActiveSettings {
    /// `broker.session.timeout.ms`.
    pub session: Duration,
    /// `leader.imbalance.check.interval.seconds`, if leaders are balanced.
    pub imbalance_check: Option<Duration>,
    /// KIP-966 in a cluster that does not say yet.
    pub eligible_leader_replicas: bool,
    /// What the node's file says of topics.
    pub topic_defaults: Defaults,
    /// For choices that want chance.
    pub seed: u64,
}

/// Decides while this node leads the quorum, and says so to whoever asks while it does not; until
/// `commands` ends.
pub async fn run(quorum: Quorum, mut commands: mpsc::Receiver<Command>, settings: ActiveSettings) {
    let mut leadership = quorum.leadership();
    loop {
        while !leadership.borrow_and_update().i_lead {
            tokio::select! {
                biased;
                changed = leadership.changed() => if changed.is_err() { return },
                command = commands.recv() => match command {
                    Some(command) => refuse(command),
                    None => return,
                },
            }
        }
        let term = match quorum.await_ready_to_lead().await {
            Ok(term) => term,
            Err(error) => {
                warn!(%error, "leads the quorum, but cannot decide yet");
                sleep(SESSION_TICK).await;
                continue;
            }
        };
        info!(term, "is the active controller");
        let image = Arc::clone(&quorum.state().borrow().state);
        let mut active = Active::new(quorum.clone(), term, settings.clone(), &image.0);
        let lost = active.lead(&mut commands).await;
        info!(term, ?lost, "is not the active controller any more");
        if lost == Lost::Stopping {
            return;
        }
    }
}

fn refuse(command: Command) {
    // The decision is made over nothing and thrown away; only its completion is wanted.
    let image = Image::default();
    let mut soft = Soft { sessions: Sessions::default(), placement_seed: 0 };
    let defaults = Defaults::new();
    let world = World { image: &image, defaults: &defaults };
    let mut deciding = Deciding { world, soft: &mut soft, now: clock::now(), index: -1 };
    let (_, complete) = (command.0)(&mut deciding);
    complete(Err(NoDecision::NotActive));
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lost {
    /// Another node leads, or none does.
    Leadership,
    /// The node stops.
    Stopping,
}

struct Active {
    quorum: Quorum,
    term: u64,
    settings: ActiveSettings,
    soft: Soft,
}

/// Decisions on their way into one entry.
#[derive(Default)]
struct Batch {
    records: Vec<Record>,
    complete: Vec<Complete>,
}

impl Active {
    fn new(quorum: Quorum, term: u64, settings: ActiveSettings, image: &Image) -> Self {
        let session_ms = u64::try_from(settings.session.as_millis()).unwrap_or(u64::MAX);
        // Whoever is in the image gets a fresh session: the last controller's are not known here.
        let sessions = Sessions::begin(session_ms, image, clock::now());
        let soft = Soft { sessions, placement_seed: settings.seed ^ term };
        Self { quorum, term, settings, soft }
    }

    async fn lead(&mut self, commands: &mut mpsc::Receiver<Command>) -> Lost {
        let mut leadership = self.quorum.leadership();
        let mut sessions = interval_at(Instant::now() + SESSION_TICK, SESSION_TICK);
        let check = self.settings.imbalance_check.unwrap_or(Duration::from_secs(86_400));
        let mut imbalance = interval_at(Instant::now() + check, check);
        if !self.first_decisions().await {
            return Lost::Leadership;
        }
        loop {
            let still = tokio::select! {
                biased;
                changed = leadership.changed() => {
                    if changed.is_err() {
                        return Lost::Stopping;
                    }
                    let now = leadership.borrow_and_update();
                    now.i_lead && now.term == self.term
                }
                _ = sessions.tick() => self.look_after_brokers().await,
                _ = imbalance.tick(), if self.settings.imbalance_check.is_some() => self.balance().await,
                command = commands.recv() => match command {
                    Some(first) => self.decide(first, commands).await,
                    None => return Lost::Stopping,
                },
            };
            if !still {
                return Lost::Leadership;
            }
        }
    }

    fn world<'a>(&'a self, image: &'a Image) -> World<'a> {
        World { image, defaults: &self.settings.topic_defaults }
    }

    /// What a new cluster is told.
    async fn first_decisions(&mut self) -> bool {
        let image = self.image();
        let records = replication::controller::features::first(
            &image.0,
            self.settings.eligible_leader_replicas,
        );
        self.write(Batch { records, complete: Vec::new() }).await
    }

    /// The image and everything that is in the log: this node is the only one to write.
    fn image(&self) -> Arc<Metadata> {
        Arc::clone(&self.quorum.state().borrow().state)
    }

    /// Decides `first` and whatever else waits. Whether this node still leads.
    async fn decide(&mut self, first: Command, commands: &mut mpsc::Receiver<Command>) -> bool {
        let applied = self.quorum.state().borrow().clone();
        let mut scratch: Option<Image> = None;
        let mut batch = Batch::default();
        let mut next = Some(first);
        while let Some(command) = next {
            let image = scratch.as_ref().unwrap_or(&applied.state.0);
            let mut deciding = Deciding {
                world: World { image, defaults: &self.settings.topic_defaults },
                soft: &mut self.soft,
                now: clock::now(),
                index: applied.index,
            };
            let (records, complete) = (command.0)(&mut deciding);
            batch.complete.push(complete);
            // A registration's index becomes the broker's epoch: nothing may build on it yet.
            let ends = records.iter().any(Record::is_registration);
            if !records.is_empty() {
                let image = scratch.get_or_insert_with(|| applied.state.0.clone());
                for record in &records {
                    if let Err(refused) = image.apply(applied.index + 1, record) {
                        warn!(%refused, "a decision does not fit the metadata");
                    }
                }
                batch.records.extend(records);
            }
            let full = batch.complete.len() >= MOST_IN_ENTRY;
            next = if ends || full { None } else { commands.try_recv().ok() };
        }
        self.write(batch).await
    }

    /// Writes what was decided and completes. Whether this node still leads.
    async fn write(&mut self, batch: Batch) -> bool {
        let Batch { records, complete } = batch;
        if records.is_empty() {
            let index = self.quorum.state().borrow().index;
            for complete in complete {
                complete(Ok(index));
            }
            return true;
        }
        debug!(?records, "decided");
        let outcome = self.quorum.write(Entry { records }, self.term).await;
        let told = match &outcome {
            Ok(index) => Ok(*index),
            Err(WriteError::NotLeader { .. }) => Err(NoDecision::NotActive),
            Err(_) => Err(NoDecision::Unknown),
        };
        for complete in complete {
            complete(told);
        }
        if let Err(error) = outcome {
            // Whether the entry is in the log is not known, so nothing may be decided over the
            // image as it is here: begin again, with all that is in the log by then.
            warn!(%error, "the metadata log does not take a decision");
            return false;
        }
        true
    }

    /// Fences one broker that was not heard of in time (R27: one an event), and gives leaderless
    /// partitions a leader where that is allowed (R29).
    async fn look_after_brokers(&mut self) -> bool {
        loop {
            let image = self.image();
            let Some(broker) = self.soft.sessions.stale(&image.0, clock::now()) else { break };
            info!(broker = broker.0, "was not heard of within its session; is fenced");
            let mut records = fencing::fence(self.world(&image.0), broker);
            if Bug::R27BatchExpiries.is_on() {
                // All that are silent, decided over one image.
                self.soft.sessions.forget(broker);
                while let Some(next) = self.soft.sessions.stale(&image.0, clock::now()) {
                    self.soft.sessions.forget(next);
                    records.extend(fencing::fence(self.world(&image.0), next));
                }
            }
            if records.is_empty() {
                self.soft.sessions.forget(broker);
                continue;
            }
            if !self.write(Batch { records, complete: Vec::new() }).await {
                return false;
            }
        }
        loop {
            let (records, again) =
                election::unclean_sweep(self.world(&self.image().0), MOST_ELECTIONS);
            if !records.is_empty() {
                info!(records = records.len(), "elects leaders uncleanly, as topics allow");
                if !self.write(Batch { records, complete: Vec::new() }).await {
                    return false;
                }
            }
            if !again || Bug::R29NoRepeat.is_on() {
                return true;
            }
        }
    }

    /// Gives leadership back to preferred replicas.
    async fn balance(&mut self) -> bool {
        loop {
            let (records, again) =
                election::preferred_sweep(self.world(&self.image().0), MOST_ELECTIONS);
            if !records.is_empty() && !self.write(Batch { records, complete: Vec::new() }).await {
                return false;
            }
            if !again {
                return true;
            }
        }
    }
}
