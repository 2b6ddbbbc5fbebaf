//! What a bad link does to packets: the settings, and the fate of each packet, without any I/O.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use rand::{Rng, RngExt};
use serde::{Deserialize, Serialize};

/// A packet that is held back for reordering waits that much longer, or the delay if that is more.
const HELD_BACK: Duration = Duration::from_millis(20);
/// What waits for a slow link beyond that is dropped, as a router's full queue would.
const MOST_BACKLOG: Duration = Duration::from_secs(2);

/// What a link does to packets. Shares are from 0 to 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Impairment {
    /// Every packet takes that much longer, milliseconds.
    pub delay_ms: u32,
    /// And up to that much more, at random, milliseconds. Order is kept.
    pub jitter_ms: u32,
    /// Share of packets that never arrive.
    pub loss: f64,
    /// Share of packets that arrive twice.
    pub duplicate: f64,
    /// Share of packets that later ones overtake.
    pub reorder: f64,
    /// Share of packets of which one bit arrives wrong; their checksum then makes the receiver drop them.
    pub corrupt: f64,
    /// Rate, kbit a second; 0: as fast as it goes.
    pub rate_kbit_per_s: u32,
}

impl fmt::Display for Impairment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut words = Vec::new();
        let mut say = |there: bool, word: String| {
            if there {
                words.push(word);
            }
        };
        say(self.delay_ms > 0, format!("delay={}ms", self.delay_ms));
        say(self.jitter_ms > 0, format!("jitter={}ms", self.jitter_ms));
        for (name, share) in self.shares() {
            say(share > 0.0, format!("{name}={}%", share * 100.0));
        }
        say(self.rate_kbit_per_s > 0, format!("rate={}kbit", self.rate_kbit_per_s));
        f.write_str(&words.join(" "))
    }
}

impl FromStr for Impairment {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut impairment = Self::default();
        for word in text.split_whitespace() {
            let wrong = || {
                format!(
                    "`{word}` is none of delay=50ms, jitter=20ms, loss=5%, duplicate=2%, reorder=5%, \
                     corrupt=1%, rate=500kbit"
                )
            };
            let (name, value) = word.split_once('=').ok_or_else(wrong)?;
            let number = |unit: &str| value.strip_suffix(unit)?.parse::<u32>().ok();
            let share = || {
                let percent = value.strip_suffix('%')?.parse::<f64>().ok()?;
                (0.0..=100.0).contains(&percent).then_some(percent / 100.0)
            };
            match name {
                "delay" => impairment.delay_ms = number("ms").ok_or_else(wrong)?,
                "jitter" => impairment.jitter_ms = number("ms").ok_or_else(wrong)?,
                "rate" => impairment.rate_kbit_per_s = number("kbit").ok_or_else(wrong)?,
                "loss" => impairment.loss = share().ok_or_else(wrong)?,
                "duplicate" => impairment.duplicate = share().ok_or_else(wrong)?,
                "reorder" => impairment.reorder = share().ok_or_else(wrong)?,
                "corrupt" => impairment.corrupt = share().ok_or_else(wrong)?,
                _ => return Err(wrong()),
            }
        }
        if impairment == Self::default() {
            return Err("a link that nothing is done to is not impaired".into());
        }
        Ok(impairment)
    }
}

impl Impairment {
    /// The shares, by name.
    pub(super) const fn shares(&self) -> [(&'static str, f64); 4] {
        [
            ("loss", self.loss),
            ("duplicate", self.duplicate),
            ("reorder", self.reorder),
            ("corrupt", self.corrupt),
        ]
    }

    /// The least of the shares that are asked for.
    pub(super) fn least_share(&self) -> Option<f64> {
        self.shares().iter().map(|(_, share)| *share).filter(|share| *share > 0.0).reduce(f64::min)
    }
}

/// What becomes of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    /// It never arrives.
    Lost,
    /// It goes on.
    Goes {
        /// When, since the link began to be bad.
        at: Duration,
        /// Twice?
        twice: bool,
        /// Later ones overtake it.
        overtaken: bool,
        /// The bit that arrives wrong, counted from the packet's first.
        wrong_bit: Option<usize>,
    },
}

/// The packets of a link, one after the other.
pub(super) struct Lane<R> {
    impairment: Impairment,
    rng: R,
    /// When the link has sent all that it was given, since it began to be bad.
    free_at: Duration,
    /// When the last packet goes that keeps its place.
    last_at: Duration,
}

impl<R: Rng> Lane<R> {
    pub(super) const fn new(impairment: Impairment, rng: R) -> Self {
        Self { impairment, rng, free_at: Duration::ZERO, last_at: Duration::ZERO }
    }

    /// The fate of a packet of `bytes` at `now`, since the link began to be bad. The first
    /// `header_bytes` of it are never spoilt: a packet that goes elsewhere is no corruption.
    pub(super) fn fate(&mut self, bytes: usize, header_bytes: usize, now: Duration) -> Fate {
        let Impairment { delay_ms, jitter_ms, loss, duplicate, reorder, corrupt, .. } =
            self.impairment;
        if self.rng.random_bool(loss) {
            return Fate::Lost;
        }
        let Some(sent_at) = self.sent_at(bytes, now) else { return Fate::Lost };
        let delay = Duration::from_millis(delay_ms.into());
        let jitter = Duration::from_millis(jitter_ms.into()).mul_f64(self.rng.random::<f64>());
        let mut at = (sent_at + delay + jitter).max(self.last_at);
        let overtaken = self.rng.random_bool(reorder);
        if overtaken {
            at += delay.max(HELD_BACK);
        } else {
            self.last_at = at;
        }
        let wrong_bit = (bytes > header_bytes && self.rng.random_bool(corrupt))
            .then(|| self.rng.random_range(header_bytes * 8..bytes * 8));
        Fate::Goes { at, twice: self.rng.random_bool(duplicate), overtaken, wrong_bit }
    }

    /// When the link has sent a packet that comes now; none where too much waits for it.
    fn sent_at(&mut self, bytes: usize, now: Duration) -> Option<Duration> {
        let rate = self.impairment.rate_kbit_per_s;
        if rate == 0 {
            return Some(now);
        }
        let begin = self.free_at.max(now);
        if begin.saturating_sub(now) > MOST_BACKLOG {
            return None;
        }
        let micros = (bytes as u64) * 8_000 / u64::from(rate);
        self.free_at = begin + Duration::from_micros(micros);
        Some(self.free_at)
    }
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;
    use rand_chacha::ChaCha8Rng;

    use super::*;

    fn lane(text: &str) -> Lane<ChaCha8Rng> {
        Lane::new(text.parse().unwrap(), ChaCha8Rng::seed_from_u64(3))
    }

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn it_is_read_as_it_is_written_and_nonsense_is_not() {
        for text in ["delay=50ms jitter=20ms", "loss=5% corrupt=0.5%", "reorder=3% rate=500kbit"] {
            let read: Impairment = text.parse().unwrap();
            assert_eq!(read.to_string(), text);
        }
        for text in ["", "loss=0%", "loss=101%", "delay=5", "delay=-5ms", "speed=3ms", "loss"] {
            assert!(text.parse::<Impairment>().is_err(), "{text}");
        }
    }

    #[test]
    fn delay_and_jitter_keep_the_order() {
        let mut lane = lane("delay=50ms jitter=40ms");
        let mut last = Duration::ZERO;
        for step in 0..200 {
            let Fate::Goes { at, twice: false, overtaken: false, wrong_bit: None } =
                lane.fate(100, 20, ms(step))
            else {
                panic!("nothing else happens to it")
            };
            assert!(at >= last && at >= ms(step + 50) && at <= ms(200 + 90));
            last = at;
        }
    }

    #[test]
    fn shares_come_true() {
        let mut lane = lane("loss=20% duplicate=30% reorder=10% corrupt=5%");
        let (mut lost, mut twice, mut overtaken, mut wrong) = (0, 0, 0, 0);
        for _ in 0..10_000 {
            match lane.fate(100, 40, ms(1)) {
                Fate::Lost => lost += 1,
                Fate::Goes { twice: t, overtaken: o, wrong_bit, .. } => {
                    twice += u32::from(t);
                    overtaken += u32::from(o);
                    wrong += u32::from(wrong_bit.is_some());
                    assert!(wrong_bit.is_none_or(|bit| (320..800).contains(&bit)));
                }
            }
        }
        let near = |count: u32, share: f64| (f64::from(count) / 10_000.0 - share).abs() < 0.02;
        assert!(near(lost, 0.2) && near(twice, 0.24) && near(overtaken, 0.08) && near(wrong, 0.04));
    }

    #[test]
    fn a_rate_spaces_packets_and_drops_what_would_wait_too_long() {
        // 1000 bytes at 80 kbit a second take 100 ms.
        let mut lane = lane("rate=80kbit");
        let at = |fate| match fate {
            Fate::Goes { at, .. } => Some(at),
            Fate::Lost => None,
        };
        assert_eq!(at(lane.fate(1_000, 20, ms(0))), Some(ms(100)));
        assert_eq!(at(lane.fate(1_000, 20, ms(0))), Some(ms(200)));
        assert_eq!(at(lane.fate(1_000, 20, ms(1_000))), Some(ms(1_100)));
        let sent = (0..100).filter_map(|_| at(lane.fate(1_000, 20, ms(1_000)))).count();
        assert_eq!(sent, 20);
    }
}
