//! A leader: the rules of this folder, put together. No lock, no clock, no I/O.

use std::collections::{BTreeMap, BTreeSet};

use crate::metadata::PartitionState;
use crate::partition::Brokers;
use crate::partition::eligibility::{epochs_match, may_enter};
use crate::partition::high_watermark::{candidate, effective_min_isr, may_advance, raised};
use crate::partition::isr_change::{
    AfterError, AlterPartitionError, AlterPartitionOk, IsrProposal, ProposalKind, after_error,
    counts, maximal_isr,
};
use crate::partition::progress::FollowerProgress;
use crate::partition::shrink::out_of_sync;
use crate::seeded::Bug;
use crate::types::{BrokerEpoch, LeaderEpoch, Millis, NodeId, Offset, PartitionEpoch, Recovery};

/// A partition as the controller committed it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Assignment {
    /// The leader's epoch.
    pub leader_epoch: LeaderEpoch,
    /// The partition's.
    pub partition_epoch: PartitionEpoch,
    /// Who holds it, the preferred leader first.
    pub replicas: Vec<NodeId>,
    /// Who is in sync.
    pub isr: Vec<NodeId>,
    /// How trustworthy the leader's log is.
    pub recovery: Recovery,
}

impl From<&PartitionState> for Assignment {
    fn from(state: &PartitionState) -> Self {
        Self {
            leader_epoch: state.leader_epoch,
            partition_epoch: state.partition_epoch,
            replicas: state.replicas.clone(),
            isr: state.isr.clone(),
            recovery: state.recovery,
        }
    }
}

/// What a leader is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// `replica.lag.time.max.ms`.
    pub lag_max_ms: u64,
    /// `min.insync.replicas`.
    pub min_insync_replicas: usize,
}

/// A follower's fetch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FollowerFetch {
    /// Who.
    pub from: NodeId,
    /// In which life.
    pub broker_epoch: BrokerEpoch,
    /// From where: its log's end.
    pub offset: Offset,
    /// When.
    pub now: Millis,
    /// Where its log begins.
    pub log_start: Offset,
}

/// Why a follower's fetch does not count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FetchRefused {
    /// It holds no replica of this partition, as far as the leader knows.
    UnknownReplica,
    /// It comes from a life that is over (R7): `NOT_LEADER_OR_FOLLOWER`.
    StaleBrokerEpoch {
        /// The life that the metadata knows.
        cached: BrokerEpoch,
    },
}

/// What a step leads to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[must_use]
pub struct Effects {
    /// The high watermark is this now, and was less.
    pub high_watermark_rose: Option<Offset>,
    /// To be asked of the controller, outside any lock (R13).
    pub propose: Option<IsrProposal>,
    /// The proposal is to be sent again (R16).
    pub retry: bool,
    /// The ISR is again what was committed last (R15).
    pub fell_back: bool,
}

/// Too few replicas are in sync for acks=all (R19).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotEnoughReplicas {
    /// So many are.
    pub in_sync: usize,
    /// So many must be.
    pub min: usize,
}

/// Does a write under acks=all count?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Acked {
    /// Yes.
    Yes,
    /// Not every member has it.
    NotYet,
    /// Every member has it, and there are too few of them (R19).
    NotEnoughAfterAppend,
}

/// What a leader knows of a follower, for whoever looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FollowerSnapshot {
    /// Who.
    pub id: NodeId,
    /// Where its log ends; `None`: it has not fetched yet.
    pub log_end: Option<Offset>,
    /// Where its log begins.
    pub log_start: Offset,
    /// When it last had everything.
    pub last_caught_up: Option<Millis>,
    /// In which life it last fetched.
    pub broker_epoch: Option<BrokerEpoch>,
}

/// The leader of a partition.
#[expect(clippy::struct_field_names, reason = "`leader_epoch` is the field's own name for it")]
#[derive(Clone, Debug)]
pub struct Leader {
    me: NodeId,
    leader_epoch: LeaderEpoch,
    partition_epoch: PartitionEpoch,
    replicas: Vec<NodeId>,
    isr: BTreeSet<NodeId>,
    pending: Option<IsrProposal>,
    settings: Settings,
    epoch_start: Offset,
    log_end: Offset,
    high_watermark: Offset,
    followers: BTreeMap<NodeId, FollowerProgress>,
}

impl Leader {
    /// A leader whose epoch begins at its log's end (R4, R21).
    pub fn elected(
        me: NodeId,
        assignment: Assignment,
        settings: Settings,
        log_end: Offset,
        high_watermark: Offset,
        now: Millis,
    ) -> Self {
        let isr: BTreeSet<NodeId> = assignment.isr.iter().copied().collect();
        let followers = assignment
            .replicas
            .iter()
            .filter(|id| **id != me)
            .map(|id| (*id, begin(isr.contains(id), now)))
            .collect();
        Self {
            me,
            leader_epoch: assignment.leader_epoch,
            partition_epoch: assignment.partition_epoch,
            replicas: assignment.replicas,
            isr,
            pending: None,
            settings,
            epoch_start: log_end,
            log_end,
            high_watermark,
            followers,
        }
    }

    /// Newer metadata of the same leader epoch: what is committed, and what was pending is
    /// settled by it.
    pub fn assigned(
        &mut self,
        assignment: Assignment,
        now: Millis,
        brokers: &impl Brokers,
    ) -> Effects {
        if assignment.partition_epoch <= self.partition_epoch {
            return Effects::default();
        }
        self.partition_epoch = assignment.partition_epoch;
        self.isr = assignment.isr.iter().copied().collect();
        self.pending = None;
        let (me, isr) = (self.me, &self.isr);
        self.followers.retain(|id, _| assignment.replicas.contains(id));
        for id in assignment.replicas.iter().filter(|id| **id != me) {
            self.followers.entry(*id).or_insert_with(|| begin(isr.contains(id), now));
        }
        self.replicas = assignment.replicas;
        self.isr_changed(now, brokers)
    }

    /// The settings have changed.
    pub fn set_settings(&mut self, settings: Settings) {
        self.settings = settings;
    }

    /// The log reaches further: an append, or, where only what is on disk counts, an fsync.
    pub fn appended(&mut self, log_end: Offset, now: Millis, brokers: &impl Brokers) -> Effects {
        self.log_end = self.log_end.max(log_end);
        self.raise(now, brokers)
    }

    /// R7: a follower fetched. It may be let into the ISR (R1), and the high watermark may rise.
    ///
    /// # Errors
    /// [`FetchRefused`]: nothing was noted.
    pub fn fetched(
        &mut self,
        fetch: FollowerFetch,
        brokers: &impl Brokers,
    ) -> Result<Effects, FetchRefused> {
        let Some(progress) = self.followers.get_mut(&fetch.from) else {
            return Err(FetchRefused::UnknownReplica);
        };
        let cached = brokers.broker(fetch.from).map(|broker| broker.epoch);
        if let Some(cached) = cached
            && fetch.broker_epoch != BrokerEpoch::BYPASS
            && fetch.broker_epoch < cached
        {
            return Err(FetchRefused::StaleBrokerEpoch { cached });
        }
        progress.fetched(
            fetch.offset,
            self.log_end,
            fetch.now,
            fetch.broker_epoch,
            fetch.log_start,
        );
        let progress = *progress;
        let entered = may_enter(
            fetch.from,
            &progress,
            self.pending.is_some(),
            self.isr.contains(&fetch.from),
            (self.high_watermark, self.epoch_start),
            brokers,
        );
        let propose = entered.then(|| {
            let mut isr = self.isr.clone();
            isr.insert(fetch.from);
            self.propose(ProposalKind::Expand(fetch.from), &isr, brokers)
        });
        let effects = self.raise(fetch.now, brokers);
        Ok(Effects { propose, ..effects })
    }

    /// What is known of brokers has changed: someone who is not eligible any more is not waited
    /// for any more (R17).
    pub fn brokers_changed(&mut self, now: Millis, brokers: &impl Brokers) -> Effects {
        self.raise(now, brokers)
    }

    /// R6, every half of `lag_max_ms`: proposes to shrink the ISR where someone has fallen behind.
    pub fn tick(&mut self, now: Millis, brokers: &impl Brokers) -> Effects {
        let out = out_of_sync(
            self.me,
            &self.isr,
            &self.followers,
            self.pending.is_some(),
            self.log_end,
            now,
            self.settings.lag_max_ms,
        );
        let propose = (!out.is_empty()).then(|| {
            let isr = self.isr.difference(&out).copied().collect();
            self.propose(ProposalKind::Shrink(out), &isr, brokers)
        });
        let effects = self.isr_changed(now, brokers);
        Effects { propose, ..effects }
    }

    fn propose(
        &mut self,
        kind: ProposalKind,
        isr: &BTreeSet<NodeId>,
        brokers: &impl Brokers,
    ) -> IsrProposal {
        let life = |id: &NodeId| {
            if *id == self.me {
                return brokers.broker(self.me).map_or(BrokerEpoch::BYPASS, |me| me.epoch);
            }
            self.followers
                .get(id)
                .and_then(|progress| progress.broker_epoch)
                .unwrap_or(BrokerEpoch::BYPASS)
        };
        let proposal = IsrProposal {
            kind,
            leader_epoch: self.leader_epoch,
            partition_epoch: self.partition_epoch,
            isr: isr.iter().map(|id| (*id, life(id))).collect(),
            recovery: Recovery::Recovered,
        };
        self.pending = Some(proposal.clone());
        proposal
    }

    /// The controller answered: R11 and R12, R14 to R16, then R13.
    pub fn answered(
        &mut self,
        proposal: &IsrProposal,
        answer: Result<AlterPartitionOk, AlterPartitionError>,
        now: Millis,
        brokers: &impl Brokers,
    ) -> Effects {
        match answer {
            Ok(ok) => {
                let pending = self.pending.as_ref();
                if !counts(pending, proposal, &ok, self.leader_epoch, self.partition_epoch) {
                    return Effects::default();
                }
                self.isr = ok.isr.into_iter().collect();
                if Bug::R11KeepProposed.is_on() {
                    self.isr = proposal.isr.iter().map(|(id, _)| *id).collect();
                }
                self.partition_epoch = ok.partition_epoch;
                self.pending = None;
                self.isr_changed(now, brokers)
            }
            Err(_) if self.pending.as_ref() != Some(proposal) => Effects::default(),
            Err(error) => match after_error(error) {
                AfterError::Wait => Effects::default(),
                AfterError::Retry => Effects { retry: true, ..Effects::default() },
                AfterError::FallBack => {
                    self.pending = None;
                    let effects = self.raise(now, brokers);
                    Effects { fell_back: true, ..effects }
                }
            },
        }
    }

    /// R13: what counts as in sync may have changed, so the high watermark is tried.
    fn isr_changed(&mut self, now: Millis, brokers: &impl Brokers) -> Effects {
        if Bug::R13NoHighWatermarkAttempt.is_on() {
            return Effects::default();
        }
        self.raise(now, brokers)
    }

    /// R17 to R19.
    fn raise(&mut self, now: Millis, brokers: &impl Brokers) -> Effects {
        if !may_advance(self.isr.len(), self.effective_min_isr()) {
            return Effects::default();
        }
        let candidate = candidate(
            self.me,
            self.log_end,
            &self.maximal_isr(),
            &self.followers,
            now,
            self.settings.lag_max_ms,
            brokers,
        );
        let rose = raised(self.high_watermark, candidate, self.log_end);
        if let Some(rose) = rose {
            self.high_watermark = rose;
        }
        Effects { high_watermark_rose: rose, ..Effects::default() }
    }

    /// R19, before an append with acks=all.
    pub fn refuse_acks_all(&self) -> Option<NotEnoughReplicas> {
        let (in_sync, min) = (self.maximal_isr().len(), self.effective_min_isr());
        (in_sync < min).then_some(NotEnoughReplicas { in_sync, min })
    }

    /// R19, after it: `required` is the offset after the write's last record.
    pub fn acked(&self, required: Offset) -> Acked {
        if self.high_watermark < required {
            Acked::NotYet
        } else if self.refuse_acks_all().is_some() {
            Acked::NotEnoughAfterAppend
        } else {
            Acked::Yes
        }
    }

    /// Is `id`, were it to ask now, in the life that the metadata knows (R3)?
    pub fn is_in_known_life(&self, id: NodeId, brokers: &impl Brokers) -> bool {
        let stored = self.followers.get(&id).and_then(|progress| progress.broker_epoch);
        epochs_match(stored, brokers.broker(id).map(|broker| broker.epoch))
    }

    /// Its epoch.
    pub const fn leader_epoch(&self) -> LeaderEpoch {
        self.leader_epoch
    }

    /// The partition's epoch.
    pub const fn partition_epoch(&self) -> PartitionEpoch {
        self.partition_epoch
    }

    /// Where its epoch begins.
    pub const fn epoch_start(&self) -> Offset {
        self.epoch_start
    }

    /// Where its log ends, as far as it counts.
    pub const fn log_end(&self) -> Offset {
        self.log_end
    }

    /// The high watermark.
    pub const fn high_watermark(&self) -> Offset {
        self.high_watermark
    }

    /// The ISR as committed.
    pub const fn isr(&self) -> &BTreeSet<NodeId> {
        &self.isr
    }

    /// The ISR as a write must take it (R9, R10).
    pub fn maximal_isr(&self) -> BTreeSet<NodeId> {
        maximal_isr(&self.isr, self.pending.as_ref())
    }

    /// What the controller was asked for and has not answered.
    pub const fn pending(&self) -> Option<&IsrProposal> {
        self.pending.as_ref()
    }

    /// Who holds the partition.
    pub fn replicas(&self) -> &[NodeId] {
        &self.replicas
    }

    /// R19.
    pub fn effective_min_isr(&self) -> usize {
        effective_min_isr(self.settings.min_insync_replicas, self.replicas.len())
    }

    /// What it knows of its followers.
    pub fn followers(&self) -> impl Iterator<Item = FollowerSnapshot> {
        self.followers.iter().map(|(id, progress)| FollowerSnapshot {
            id: *id,
            log_end: progress.log_end,
            log_start: progress.log_start,
            last_caught_up: progress.last_caught_up,
            broker_epoch: progress.broker_epoch,
        })
    }
}

fn begin(in_isr: bool, now: Millis) -> FollowerProgress {
    if in_isr { FollowerProgress::begin(now) } else { FollowerProgress::begin_outside() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::partition::BrokerState;

    type Known = BTreeMap<NodeId, BrokerState>;

    fn ids(ids: &[i32]) -> Vec<NodeId> {
        ids.iter().copied().map(NodeId).collect()
    }

    /// Brokers 1 to 3, broker N in life 10 + N.
    fn brokers() -> Known {
        (1..=3)
            .map(|id| {
                let epoch = BrokerEpoch(10 + i64::from(id));
                (NodeId(id), BrokerState { epoch, fenced: false, in_controlled_shutdown: false })
            })
            .collect()
    }

    fn assignment(isr: &[i32], partition_epoch: i32) -> Assignment {
        Assignment {
            leader_epoch: LeaderEpoch(5),
            partition_epoch: PartitionEpoch(partition_epoch),
            replicas: ids(&[1, 2, 3]),
            isr: ids(isr),
            recovery: Recovery::Recovered,
        }
    }

    /// Node 1 leads from offset 10 on, everything before is committed.
    fn leader(isr: &[i32]) -> Leader {
        let settings = Settings { lag_max_ms: 1_000, min_insync_replicas: 1 };
        Leader::elected(NodeId(1), assignment(isr, 7), settings, Offset(10), Offset(10), Millis(0))
    }

    fn fetch(from: i32, offset: i64, now: u64) -> FollowerFetch {
        FollowerFetch {
            from: NodeId(from),
            broker_epoch: BrokerEpoch(10 + i64::from(from)),
            offset: Offset(offset),
            now: Millis(now),
            log_start: Offset(0),
        }
    }

    fn ok(isr: &[i32], partition_epoch: i32) -> AlterPartitionOk {
        AlterPartitionOk {
            leader_epoch: LeaderEpoch(5),
            partition_epoch: PartitionEpoch(partition_epoch),
            isr: ids(isr),
            recovery: Recovery::Recovered,
        }
    }

    #[test]
    fn r7_a_fetch_of_a_life_that_is_over_stores_nothing() {
        let mut leader = leader(&[1, 2]);
        let stale = FollowerFetch { broker_epoch: BrokerEpoch(11), ..fetch(2, 10, 1) };
        assert_eq!(
            leader.fetched(stale, &brokers()),
            Err(FetchRefused::StaleBrokerEpoch { cached: BrokerEpoch(12) })
        );
        assert!(leader.followers().all(|follower| follower.log_end.is_none()));
        // One that the metadata does not know yet is stored, and makes it ineligible for now.
        let newer = FollowerFetch { broker_epoch: BrokerEpoch(99), ..fetch(2, 10, 1) };
        assert!(leader.fetched(newer, &brokers()).is_ok());
        assert!(!leader.is_in_known_life(NodeId(2), &brokers()));
        assert_eq!(leader.fetched(fetch(9, 10, 1), &brokers()), Err(FetchRefused::UnknownReplica));
    }

    #[test]
    fn r9_a_joiner_is_waited_for_before_the_controller_answers() {
        let mut leader = leader(&[1, 2]);
        let _ = leader.fetched(fetch(2, 10, 1), &brokers()).unwrap();
        let effects = leader.fetched(fetch(3, 10, 1), &brokers()).unwrap();
        let proposal = effects.propose.expect("it is in sync");
        assert_eq!(
            proposal.isr,
            [
                (NodeId(1), BrokerEpoch(11)),
                (NodeId(2), BrokerEpoch(12)),
                (NodeId(3), BrokerEpoch(13))
            ]
        );
        let _ = leader.appended(Offset(11), Millis(2), &brokers());
        // Long after 3 was caught up, and before the controller has answered.
        let late = leader.fetched(fetch(2, 11, 9_000), &brokers()).unwrap();
        assert_eq!((late.high_watermark_rose, leader.high_watermark()), (None, Offset(10)));
    }

    #[test]
    fn r11_what_the_controller_answers_holds_not_what_was_asked() {
        let mut leader = leader(&[1, 2]);
        let asked = leader.fetched(fetch(3, 10, 1), &brokers()).unwrap().propose.unwrap();
        let _ = leader.answered(&asked, Ok(ok(&[1, 3], 9)), Millis(2), &brokers());
        assert_eq!(leader.isr().iter().copied().collect::<Vec<_>>(), ids(&[1, 3]));
        assert_eq!((leader.partition_epoch(), leader.pending()), (PartitionEpoch(9), None));
    }

    #[test]
    fn r13_after_a_shrink_the_high_watermark_rises_at_once() {
        let mut leader = leader(&[1, 2]);
        let _ = leader.appended(Offset(11), Millis(1), &brokers());
        let asked = leader.tick(Millis(2_000), &brokers()).propose.expect("2 is gone");
        assert_eq!(asked.isr, [(NodeId(1), BrokerEpoch(11))]);
        assert_eq!(leader.high_watermark(), Offset(10), "R10: not before it is confirmed");
        let effects = leader.answered(&asked, Ok(ok(&[1], 8)), Millis(2_001), &brokers());
        assert_eq!(effects.high_watermark_rose, Some(Offset(11)));
        assert_eq!(leader.acked(Offset(11)), Acked::Yes);
    }

    #[test]
    fn r15_after_a_refusal_the_replica_may_be_proposed_again() {
        let mut leader = leader(&[1, 2]);
        let asked = leader.fetched(fetch(3, 10, 1), &brokers()).unwrap().propose.unwrap();
        let refused = Err(AlterPartitionError::IneligibleReplica);
        assert!(leader.answered(&asked, refused, Millis(2), &brokers()).fell_back);
        assert!(leader.fetched(fetch(3, 10, 3), &brokers()).unwrap().propose.is_some());
    }

    #[test]
    fn r16_anything_else_stays_pending_and_is_sent_again() {
        let mut leader = leader(&[1, 2]);
        let asked = leader.fetched(fetch(3, 10, 1), &brokers()).unwrap().propose.unwrap();
        let effects =
            leader.answered(&asked, Err(AlterPartitionError::Other), Millis(2), &brokers());
        assert!(effects.retry);
        assert_eq!(leader.pending(), Some(&asked));
    }

    #[test]
    fn r19_a_write_that_lost_its_replicas_is_told_so() {
        let mut leader = leader(&[1, 2]);
        leader.set_settings(Settings { lag_max_ms: 1_000, min_insync_replicas: 2 });
        assert_eq!(leader.refuse_acks_all(), None);
        let _ = leader.appended(Offset(11), Millis(1), &brokers());
        assert_eq!(leader.acked(Offset(11)), Acked::NotYet);
        let _ = leader.fetched(fetch(2, 11, 2), &brokers()).unwrap();
        assert_eq!(leader.acked(Offset(11)), Acked::Yes);
        let _ = leader.assigned(assignment(&[1], 8), Millis(3), &brokers());
        assert_eq!(leader.acked(Offset(11)), Acked::NotEnoughAfterAppend);
        assert_eq!(leader.refuse_acks_all(), Some(NotEnoughReplicas { in_sync: 1, min: 2 }));
        // And with acks=1 the high watermark stays.
        let effects = leader.appended(Offset(12), Millis(4), &brokers());
        assert_eq!(effects.high_watermark_rose, None);
    }
}
