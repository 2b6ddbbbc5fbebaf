//! Changes of the ISR between proposal and confirmation: R9 to R16.

use std::collections::BTreeSet;

use crate::seeded::Bug;
use crate::types::{BrokerEpoch, LeaderEpoch, NodeId, PartitionEpoch, Recovery};

/// In which direction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProposalKind {
    /// A replica enters.
    Expand(NodeId),
    /// Replicas leave.
    Shrink(BTreeSet<NodeId>),
}

/// What the controller is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IsrProposal {
    /// In which direction.
    pub kind: ProposalKind,
    /// The leader's epoch.
    pub leader_epoch: LeaderEpoch,
    /// The partition epoch on which it builds (R35).
    pub partition_epoch: PartitionEpoch,
    /// The ISR that is wanted, each member in the life that the leader knows; -1 for a member
    /// that has not fetched from this leader yet (R3).
    pub isr: Vec<(NodeId, BrokerEpoch)>,
    /// A leader's log is its own truth: it recovers by being accepted (KIP-704).
    pub recovery: Recovery,
}

/// The controller took a proposal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AlterPartitionOk {
    /// The leader epoch.
    pub leader_epoch: LeaderEpoch,
    /// The new partition epoch.
    pub partition_epoch: PartitionEpoch,
    /// The ISR that holds.
    pub isr: Vec<NodeId>,
    /// The recovery state that holds.
    pub recovery: Recovery,
}

/// The controller did not take a proposal, as far as the rules tell errors apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AlterPartitionError {
    /// `UNKNOWN_TOPIC_OR_PARTITION` (R14).
    UnknownTopicOrPartition,
    /// `UNKNOWN_TOPIC_ID` (R14).
    UnknownTopicId,
    /// `FENCED_LEADER_EPOCH` (R14).
    FencedLeaderEpoch,
    /// `INVALID_UPDATE_VERSION` (R14).
    InvalidUpdateVersion,
    /// `INVALID_REQUEST` (R14).
    InvalidRequest,
    /// `NEW_LEADER_ELECTED` (R14).
    NewLeaderElected,
    /// `OPERATION_NOT_ATTEMPTED` (R15).
    OperationNotAttempted,
    /// `INELIGIBLE_REPLICA` (R15).
    IneligibleReplica,
    /// Anything else (R16).
    Other,
}

/// What a leader does after a proposal was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AfterError {
    /// R14: stays pending; metadata will tell.
    Wait,
    /// R15: falls back to what was committed last.
    FallBack,
    /// R16: asks again.
    Retry,
}

/// R14 to R16.
pub fn after_error(error: AlterPartitionError) -> AfterError {
    match error {
        AlterPartitionError::UnknownTopicOrPartition
        | AlterPartitionError::UnknownTopicId
        | AlterPartitionError::FencedLeaderEpoch
        | AlterPartitionError::InvalidUpdateVersion
        | AlterPartitionError::InvalidRequest
        | AlterPartitionError::NewLeaderElected => {
            if Bug::R14Retry.is_on() {
                AfterError::Retry
            } else {
                AfterError::Wait
            }
        }
        AlterPartitionError::OperationNotAttempted | AlterPartitionError::IneligibleReplica => {
            if Bug::R15StayPending.is_on() {
                AfterError::Wait
            } else {
                AfterError::FallBack
            }
        }
        AlterPartitionError::Other if Bug::R16LoseRetry.is_on() => AfterError::Wait,
        AlterPartitionError::Other => AfterError::Retry,
    }
}

/// R9 and R10: the ISR as a write must take it while `pending` is not confirmed. An expansion
/// counts at once, since a stricter set is safe; a shrink does not count until it is confirmed.
pub fn maximal_isr(
    committed: &BTreeSet<NodeId>,
    pending: Option<&IsrProposal>,
) -> BTreeSet<NodeId> {
    let mut maximal = committed.clone();
    match pending.map(|proposal| &proposal.kind) {
        Some(ProposalKind::Expand(joiner)) if !Bug::R9MaximalIsIsr.is_on() => {
            maximal.insert(*joiner);
        }
        Some(ProposalKind::Shrink(leaving)) if Bug::R10AssumeSuccess.is_on() => {
            maximal.retain(|id| !leaving.contains(id));
        }
        _ => {}
    }
    maximal
}

/// R12: does `answer` to `proposal` count? Only if that is what is pending, in the current leader
/// epoch, and not older than what is known.
pub fn counts(
    pending: Option<&IsrProposal>,
    proposal: &IsrProposal,
    answer: &AlterPartitionOk,
    leader_epoch: LeaderEpoch,
    partition_epoch: PartitionEpoch,
) -> bool {
    if Bug::R12AcceptOlder.is_on() {
        return true;
    }
    pending == Some(proposal)
        && answer.leader_epoch == leader_epoch
        && answer.partition_epoch >= partition_epoch
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ids(ids: &[i32]) -> BTreeSet<NodeId> {
        ids.iter().copied().map(NodeId).collect()
    }

    fn proposal(kind: ProposalKind) -> IsrProposal {
        IsrProposal {
            kind,
            leader_epoch: LeaderEpoch(3),
            partition_epoch: PartitionEpoch(8),
            isr: Vec::new(),
            recovery: Recovery::Recovered,
        }
    }

    fn ok(leader_epoch: i32, partition_epoch: i32) -> AlterPartitionOk {
        AlterPartitionOk {
            leader_epoch: LeaderEpoch(leader_epoch),
            partition_epoch: PartitionEpoch(partition_epoch),
            isr: Vec::new(),
            recovery: Recovery::Recovered,
        }
    }

    #[test]
    fn r9_who_is_about_to_enter_counts_at_once() {
        let pending = proposal(ProposalKind::Expand(NodeId(3)));
        assert_eq!(maximal_isr(&ids(&[1, 2]), Some(&pending)), ids(&[1, 2, 3]));
    }

    #[test]
    fn r10_who_is_about_to_leave_counts_until_that_is_confirmed() {
        let pending = proposal(ProposalKind::Shrink(ids(&[2, 3])));
        assert_eq!(maximal_isr(&ids(&[1, 2, 3]), Some(&pending)), ids(&[1, 2, 3]));
    }

    #[test]
    fn r12_an_answer_about_the_past_is_ignored() {
        let pending = proposal(ProposalKind::Expand(NodeId(3)));
        let other = proposal(ProposalKind::Expand(NodeId(2)));
        let judge = |pending: Option<&IsrProposal>, answer: AlterPartitionOk| {
            counts(
                pending,
                &proposal(ProposalKind::Expand(NodeId(3))),
                &answer,
                LeaderEpoch(3),
                PartitionEpoch(8),
            )
        };
        assert!(judge(Some(&pending), ok(3, 9)));
        assert!(judge(Some(&pending), ok(3, 8)));
        assert!(!judge(Some(&pending), ok(2, 9)), "held past an election");
        assert!(!judge(Some(&pending), ok(3, 7)), "older than what is known");
        assert!(!judge(Some(&other), ok(3, 9)), "something else is pending");
        assert!(!judge(None, ok(3, 9)), "nothing is pending");
    }

    #[test]
    fn r14_these_wait_for_metadata() {
        for error in [
            AlterPartitionError::UnknownTopicOrPartition,
            AlterPartitionError::UnknownTopicId,
            AlterPartitionError::FencedLeaderEpoch,
            AlterPartitionError::InvalidUpdateVersion,
            AlterPartitionError::InvalidRequest,
            AlterPartitionError::NewLeaderElected,
        ] {
            assert_eq!(after_error(error), AfterError::Wait, "{error:?}");
        }
    }

    #[test]
    fn r15_these_fall_back() {
        for error in
            [AlterPartitionError::OperationNotAttempted, AlterPartitionError::IneligibleReplica]
        {
            assert_eq!(after_error(error), AfterError::FallBack, "{error:?}");
        }
    }

    #[test]
    fn r16_anything_else_is_asked_again() {
        assert_eq!(after_error(AlterPartitionError::Other), AfterError::Retry);
    }
}
