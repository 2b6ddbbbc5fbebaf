//! Requests that name a leader epoch: R31 and R32.

use crate::seeded::Bug;
use crate::types::LeaderEpoch;

/// The epoch asked for is not the one here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EpochMismatch {
    /// The asker is behind: `FENCED_LEADER_EPOCH`.
    Fenced,
    /// The asker is ahead: `UNKNOWN_LEADER_EPOCH`.
    Unknown,
}

/// R31: whoever names no epoch is not checked.
///
/// # Errors
/// [`EpochMismatch`].
pub fn check_leader_epoch(
    current: LeaderEpoch,
    asked: Option<LeaderEpoch>,
) -> Result<(), EpochMismatch> {
    if Bug::R31NoEpochCheck.is_on() {
        return Ok(());
    }
    match asked {
        Some(asked) if asked < current => Err(EpochMismatch::Fenced),
        Some(asked) if asked > current => Err(EpochMismatch::Unknown),
        _ => Ok(()),
    }
}

/// What a fetcher does after `FENCED_LEADER_EPOCH`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fenced {
    /// Gives up until there is newer metadata.
    Failed,
    /// Goes on, in the newer epoch that it has heard of meanwhile.
    Retry,
}

/// R32: fails only if the request was made in the epoch that is still the current one.
pub fn on_fenced(request_epoch: LeaderEpoch, current_epoch: LeaderEpoch) -> Fenced {
    if request_epoch == current_epoch || Bug::R32FailAlways.is_on() {
        Fenced::Failed
    } else {
        Fenced::Retry
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r31_older_is_fenced_newer_is_unknown_absent_is_fine() {
        let check = |asked: Option<i32>| check_leader_epoch(LeaderEpoch(5), asked.map(LeaderEpoch));
        assert_eq!(check(Some(4)), Err(EpochMismatch::Fenced));
        assert_eq!(check(Some(6)), Err(EpochMismatch::Unknown));
        assert_eq!(check(Some(5)), Ok(()));
        assert_eq!(check(None), Ok(()));
    }

    #[test]
    fn r32_an_epoch_bump_in_flight_does_not_stop_fetching() {
        assert_eq!(on_fenced(LeaderEpoch(5), LeaderEpoch(6)), Fenced::Retry);
        assert_eq!(on_fenced(LeaderEpoch(5), LeaderEpoch(5)), Fenced::Failed);
    }
}
