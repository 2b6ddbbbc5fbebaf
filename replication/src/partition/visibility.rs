//! What a consumer may see: R34.

use crate::seeded::Bug;
use crate::types::Offset;

/// Between an election and the moment when the high watermark reaches the epoch's start, the end
/// that a consumer could see is not known (KIP-207).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OffsetNotAvailable;

/// R34: the offset after the last record that a consumer may see. Without transactions that is
/// the high watermark.
pub fn visible_end(high_watermark: Offset, log_end: Offset) -> Offset {
    if Bug::R34ServeToLogEnd.is_on() {
        return log_end;
    }
    high_watermark.min(log_end)
}

/// R34: what ListOffsets answers to a consumer that asks for the end.
///
/// # Errors
/// [`OffsetNotAvailable`].
pub fn latest_offset(
    high_watermark: Offset,
    epoch_start: Offset,
    log_end: Offset,
) -> Result<Offset, OffsetNotAvailable> {
    if high_watermark < epoch_start {
        return Err(OffsetNotAvailable);
    }
    Ok(visible_end(high_watermark, log_end))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r34_nothing_at_or_above_the_high_watermark_is_seen() {
        assert_eq!(visible_end(Offset(7), Offset(9)), Offset(7));
    }

    #[test]
    fn r34_after_an_election_the_end_is_unknown_until_the_epochs_start_is_committed() {
        assert_eq!(latest_offset(Offset(7), Offset(9), Offset(9)), Err(OffsetNotAvailable));
        assert_eq!(latest_offset(Offset(9), Offset(9), Offset(12)), Ok(Offset(9)));
    }
}
