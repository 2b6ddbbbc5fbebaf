//! Medians, spreads and ratios.

use serde::Serialize;

use super::metric::Better;

/// What the rounds of one system came to.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct Spread {
    /// The value in the middle, or the mean of the two there.
    pub(crate) median: f64,
    /// The least.
    pub(crate) min: f64,
    /// The greatest.
    pub(crate) max: f64,
    /// How many values there are.
    pub(crate) values: usize,
}

/// The spread of `values`; `None` where there are none. What is not a number is left out.
pub(crate) fn spread(values: &[f64]) -> Option<Spread> {
    let mut sorted: Vec<f64> = values.iter().copied().filter(|value| value.is_finite()).collect();
    sorted.sort_by(f64::total_cmp);
    let (min, max) = (*sorted.first()?, *sorted.last()?);
    let middle = sorted.len() / 2;
    let upper = *sorted.get(middle)?;
    let median = if sorted.len() % 2 == 1 {
        upper
    } else {
        f64::midpoint(*sorted.get(middle.checked_sub(1)?)?, upper)
    };
    Some(Spread { median, min, max, values: sorted.len() })
}

/// What a ratio says of the system above the line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Direction {
    /// It is the better one.
    Better,
    /// It is the worse one.
    Worse,
    /// There is no difference.
    Equal,
}

impl Direction {
    /// For the table.
    pub(crate) const fn word(self) -> &'static str {
        match self {
            Self::Better => "better",
            Self::Worse => "worse",
            Self::Equal => "equal",
        }
    }
}

/// The median of one system by that of another.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct Ratio {
    /// One by the other.
    pub(crate) value: f64,
    /// What that means for the one.
    pub(crate) direction: Direction,
    /// Do their spreads overlap? Then more rounds may turn it round.
    pub(crate) spreads_overlap: bool,
}

/// `one` by `other`; `None` where the other is zero.
pub(crate) fn ratio(one: &Spread, other: &Spread, better: Better) -> Option<Ratio> {
    let value = one.median / other.median;
    if !value.is_finite() {
        return None;
    }
    let direction = match (one.median.total_cmp(&other.median), better) {
        (std::cmp::Ordering::Equal, _) => Direction::Equal,
        (std::cmp::Ordering::Greater, Better::Higher)
        | (std::cmp::Ordering::Less, Better::Lower) => Direction::Better,
        _ => Direction::Worse,
    };
    let spreads_overlap = one.min <= other.max && other.min <= one.max;
    Some(Ratio { value, direction, spreads_overlap })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(values: &[f64]) -> Spread {
        spread(values).unwrap()
    }

    #[test]
    fn the_median_is_in_the_middle_whatever_the_order() {
        assert_eq!(of(&[3.0, 1.0, 2.0]), Spread { median: 2.0, min: 1.0, max: 3.0, values: 3 });
        assert_eq!(of(&[4.0, 1.0]).median.to_bits(), 2.5_f64.to_bits());
        assert_eq!(of(&[7.0]), Spread { median: 7.0, min: 7.0, max: 7.0, values: 1 });
        assert_eq!(spread(&[]), None);
        assert_eq!(of(&[f64::NAN, 1.0, f64::INFINITY]).values, 1);
    }

    #[test]
    fn which_way_a_ratio_is_better_depends_on_the_metric() {
        let (ten, five) = (of(&[10.0]), of(&[5.0]));
        let told = |one, other, better| {
            let ratio = ratio(one, other, better).unwrap();
            (ratio.value, ratio.direction)
        };
        assert_eq!(told(&ten, &five, Better::Higher), (2.0, Direction::Better));
        assert_eq!(told(&ten, &five, Better::Lower), (2.0, Direction::Worse));
        assert_eq!(told(&five, &ten, Better::Higher), (0.5, Direction::Worse));
        assert_eq!(told(&five, &ten, Better::Lower), (0.5, Direction::Better));
        assert_eq!(told(&ten, &ten, Better::Lower), (1.0, Direction::Equal));
    }

    #[test]
    fn spreads_that_overlap_are_told_and_nothing_is_divided_by_zero() {
        let overlap =
            |one: &[f64], other: &[f64]| ratio(&of(one), &of(other), Better::Higher).unwrap();
        assert!(overlap(&[1.0, 2.0, 3.0], &[3.0, 4.0, 5.0]).spreads_overlap);
        assert!(overlap(&[3.0, 4.0], &[1.0, 9.0]).spreads_overlap);
        assert!(!overlap(&[1.0, 2.0], &[2.1, 4.0]).spreads_overlap);
        assert_eq!(ratio(&of(&[1.0]), &of(&[0.0]), Better::Higher), None);
    }
}
