//! What a bad link does, seen with datagrams of our own: sent from the sender's namespace, received in the
//! receiver's, on one clock.

use std::collections::BTreeMap;
use std::io;
use std::time::{Duration, Instant};

use serde::Serialize;
use tokio::net::UdpSocket;
use tokio::time::timeout_at;

use super::impairment::Impairment;

/// Datagrams of a measurement: at least, and at most.
const FEWEST: u32 = 40;
const MOST: u32 = 500;
/// The rarest thing shall happen that often among them.
const EXPECTED: f64 = 6.0;
/// Between two of them.
const SPACE: Duration = Duration::from_millis(2);
/// A link counts as slow up to this many times the rate asked for.
const RATE_TOLERANCE: f64 = 1.3;
/// How long a late one is waited for, beyond what was asked for.
const PATIENCE: Duration = Duration::from_millis(300);
/// Number and time of sending, and filling.
const BYTES: usize = 200;
/// What headers add on the wire.
const HEADERS: u32 = 28;

/// What was seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Measured {
    /// Datagrams sent.
    pub sent: u32,
    /// Of these, how many arrived at least once.
    pub arrived: u32,
    /// Arrived once more.
    pub again: u32,
    /// Arrived after one that was sent later.
    pub overtaken: u32,
    /// Median time that they took, milliseconds.
    pub delay_ms: f64,
    /// From the quickest to the slowest tenth, milliseconds.
    pub spread_ms: f64,
    /// How fast they arrived, kbit a second, where a rate was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kbit_per_s: Option<f64>,
}

impl Measured {
    /// Why this is not what `asked` says; none if it is.
    pub fn differs(&self, asked: &Impairment) -> Option<String> {
        let lossy = asked.loss > 0.0 || asked.corrupt > 0.0 || asked.rate_kbit_per_s > 0;
        if self.arrived == 0 && asked.loss < 1.0 {
            return Some("nothing arrives at all".into());
        }
        if self.arrived == self.sent && (asked.loss > 0.0 || asked.corrupt > 0.0) {
            return Some(format!("all {} datagrams arrive", self.sent));
        }
        if self.arrived < self.sent && !lossy {
            return Some(format!("{} of {} do not arrive", self.sent - self.arrived, self.sent));
        }
        if asked.duplicate > 0.0 && self.again == 0 {
            return Some("none arrives twice".into());
        }
        if asked.reorder > 0.0 && self.overtaken == 0 {
            return Some("none is overtaken".into());
        }
        if self.arrived > 0 && self.delay_ms < f64::from(asked.delay_ms) {
            return Some(format!("they take {:.1} ms", self.delay_ms));
        }
        let most = f64::from(asked.rate_kbit_per_s) * RATE_TOLERANCE;
        if let Some(rate) = self.kbit_per_s.filter(|rate| *rate > most) {
            return Some(format!("{rate:.0} kbit/s arrive"));
        }
        if self.arrived > 0
            && asked.jitter_ms > 0
            && self.spread_ms < f64::from(asked.jitter_ms) * 0.2
        {
            return Some(format!("they differ by {:.1} ms only", self.spread_ms));
        }
        None
    }
}

/// How many datagrams tell whether `asked` is so.
fn datagrams(asked: &Impairment) -> u32 {
    let wanted = asked.least_share().map_or(0.0, |share| EXPECTED / share);
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "positive and cut off below 2^31"
    )]
    let wanted = wanted.ceil().min(f64::from(MOST)) as u32;
    wanted.clamp(FEWEST, MOST)
}

/// Sends from one socket to the other, and counts.
pub(super) async fn measure(
    from: &UdpSocket,
    to: &UdpSocket,
    asked: &Impairment,
) -> io::Result<Measured> {
    let target = to.local_addr()?;
    let count = datagrams(asked);
    let begun = Instant::now();
    // Faster than a rate allows, but not so that the link is flooded.
    let wire_bits = (u32::try_from(BYTES).unwrap_or(u32::MAX) + HEADERS) * 8;
    let space = match asked.rate_kbit_per_s {
        0 => SPACE,
        rate => Duration::from_micros(u64::from(wire_bits) * 600 / u64::from(rate)),
    };
    let late = space * count
        + Duration::from_millis((u64::from(asked.delay_ms) + u64::from(asked.jitter_ms)) * 2);
    let sending = async {
        let mut pace = tokio::time::interval(space);
        for number in 0..count {
            pace.tick().await;
            let mut datagram = vec![0; BYTES];
            datagram.splice(..4, number.to_be_bytes());
            let now = u64::try_from(begun.elapsed().as_nanos()).unwrap_or(u64::MAX);
            datagram.splice(4..12, now.to_be_bytes());
            // A local refusal is a loss like any other.
            let _ = from.send_to(&datagram, target).await;
        }
    };
    let hearing = hear(to, begun, begun + space * count + late + PATIENCE, count);
    let ((), heard) = tokio::join!(sending, hearing);
    let mut measured = summary(count, &heard);
    if asked.rate_kbit_per_s > 0
        && let [(_, _, first), .., (_, _, last)] = heard.as_slice()
    {
        let bits = f64::from(wire_bits) * (heard.len() - 1) as f64;
        let seconds = last.saturating_sub(*first).as_secs_f64().max(1e-6);
        measured.kbit_per_s = Some((bits / seconds / 1_000.0).round());
    }
    Ok(measured)
}

/// A datagram's number, what it took, and when it came.
type Heard = (u32, Duration, Duration);

/// In the order of arrival.
async fn hear(to: &UdpSocket, begun: Instant, until: Instant, count: u32) -> Vec<Heard> {
    let mut heard = Vec::new();
    let mut buffer = [0; BYTES];
    while let Ok(Ok(length)) = timeout_at(until.into(), to.recv(&mut buffer)).await {
        let now = begun.elapsed();
        let number = buffer.first_chunk().map(|bytes| u32::from_be_bytes(*bytes));
        let sent = buffer.get(4..).and_then(|rest| rest.first_chunk());
        let sent = sent.map(|bytes| Duration::from_nanos(u64::from_be_bytes(*bytes)));
        if let (BYTES, Some(number), Some(sent)) = (length, number, sent)
            && number < count
        {
            heard.push((number, now.saturating_sub(sent), now));
        }
    }
    heard
}

fn summary(sent: u32, heard: &[Heard]) -> Measured {
    let mut times: BTreeMap<u32, u32> = BTreeMap::new();
    let (mut highest, mut overtaken) = (None, 0);
    for (number, ..) in heard {
        let again = times.entry(*number).or_default();
        *again += 1;
        if *again == 1 && highest.is_some_and(|highest| *number < highest) {
            overtaken += 1;
        }
        highest = highest.max(Some(*number));
    }
    let mut took: Vec<f64> =
        heard.iter().map(|(_, took, _)| took.as_secs_f64() * 1_000.0).collect();
    took.sort_by(f64::total_cmp);
    let at = |tenths: usize| took.get(took.len() * tenths / 10).copied().unwrap_or_default();
    let rounded = |ms: f64| (ms * 100.0).round() / 100.0;
    Measured {
        sent,
        arrived: u32::try_from(times.len()).unwrap_or(u32::MAX),
        again: times.values().map(|count| count - 1).sum(),
        overtaken,
        delay_ms: rounded(at(5)),
        spread_ms: rounded(at(9) - at(1)),
        kbit_per_s: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn heard(numbers: &[u32], ms: u64) -> Vec<Heard> {
        let took = Duration::from_millis(ms);
        numbers.iter().map(|number| (*number, took, took)).collect()
    }

    fn differs(asked: &str, measured: &Measured) -> bool {
        measured.differs(&asked.parse().unwrap()).is_some()
    }

    #[test]
    fn losses_repeats_and_overtaking_are_counted() {
        let seen = summary(6, &heard(&[0, 2, 1, 2, 5], 7));
        assert_eq!((seen.sent, seen.arrived, seen.again, seen.overtaken), (6, 4, 1, 1));
        assert!((seen.delay_ms - 7.0).abs() < 0.1);
        for asked in ["loss=10%", "loss=10% duplicate=5%", "loss=10% delay=7ms", "corrupt=5%"] {
            assert!(!differs(asked, &seen), "{asked}");
        }
        for asked in ["delay=5ms", "loss=10% delay=9ms", "loss=10% jitter=5ms"] {
            assert!(differs(asked, &seen), "{asked}");
        }
    }

    #[test]
    fn what_did_not_happen_is_told() {
        let seen = summary(3, &heard(&[0, 1, 2], 0));
        for asked in ["loss=10%", "corrupt=10%", "duplicate=5%", "reorder=5%", "delay=1ms"] {
            assert!(differs(asked, &seen), "{asked}");
        }
        assert!(differs("loss=10%", &summary(3, &[])));
        assert!(!differs("loss=100%", &summary(3, &[])));
        assert!(!differs("rate=100kbit", &Measured { kbit_per_s: Some(110.0), ..seen }));
        assert!(differs("rate=100kbit", &Measured { kbit_per_s: Some(210.0), ..seen }));
    }

    #[test]
    fn rare_things_are_given_time_to_happen() {
        let of = |text: &str| datagrams(&text.parse().unwrap());
        assert_eq!((of("delay=5ms"), of("loss=5%"), of("loss=0.1%")), (40, 120, 500));
    }
}
