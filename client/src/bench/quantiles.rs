//! Latencies, in bounded memory.

use std::time::Duration;

use hdrhistogram::Histogram;

/// Longest latency that is told apart from longer ones: ten minutes.
const MOST_US: u64 = 600_000_000;
/// Decimal digits that are kept of each latency.
const DIGITS: u8 = 3;

/// Latencies, rounded to three digits: a histogram of fixed size.
pub(super) struct Latencies(Option<Histogram<u64>>);

impl Default for Latencies {
    fn default() -> Self {
        // The bounds are constants that the histogram accepts.
        Self(Histogram::new_with_bounds(1, MOST_US, DIGITS).ok())
    }
}

impl Latencies {
    /// Adds one latency.
    pub(super) fn add(&mut self, latency_us: u64) {
        if let Some(histogram) = &mut self.0 {
            histogram.saturating_record(latency_us);
        }
    }

    /// What they come to; `None` where there are none.
    pub(super) fn quantiles(&self) -> Option<Quantiles> {
        let histogram = self.0.as_ref().filter(|histogram| !histogram.is_empty())?;
        let at = |quantile| histogram.value_at_quantile(quantile);
        Some(Quantiles {
            count: histogram.len(),
            p50_us: at(0.5),
            p99_us: at(0.99),
            p999_us: at(0.999),
            max_us: histogram.max(),
        })
    }
}

/// Quantiles of latencies, microseconds, each within 0.1 %.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Quantiles {
    /// How many latencies there were.
    pub count: u64,
    /// Half were at most this.
    pub p50_us: u64,
    /// All but one in a hundred were at most this.
    pub p99_us: u64,
    /// All but one in a thousand were at most this.
    pub p999_us: u64,
    /// The longest.
    pub max_us: u64,
}

/// Whole microseconds, for histograms and for what librdkafka carries along with a record.
pub(super) fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_the_smallest_value_that_enough_do_not_exceed() {
        let mut latencies = Latencies::default();
        for latency_us in 1..=1000 {
            latencies.add(latency_us);
        }
        let told = latencies.quantiles().unwrap();
        assert_eq!((told.count, told.p50_us, told.p99_us), (1000, 500, 990));
        assert_eq!((told.p999_us, told.max_us), (999, 1000));
    }

    #[test]
    fn none_come_to_nothing_and_the_absurd_is_kept_as_the_longest() {
        let mut latencies = Latencies::default();
        assert_eq!(latencies.quantiles(), None);
        latencies.add(u64::MAX);
        assert!(latencies.quantiles().unwrap().max_us >= MOST_US);
    }
}
