//! The schedules of the workload `queue`: open-loop, so a slow cluster does not slow the asking.

use std::iter;

use rand::RngExt;
use rand::seq::SliceRandom;

use crate::plan::QueuePlan;
use crate::rng::{Stream, stream};

const NS_PER_S: f64 = 1e9;
const NS_PER_MS: u64 = 1_000_000;

/// One send of the schedule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlannedSend {
    /// When, in nanoseconds since the workload started.
    pub time_ns: u64,
    /// The producer client, from 0.
    pub producer: usize,
    /// The key, as an index into [`QueuePlan::keys`].
    pub key: usize,
    /// The value: 0, 1, 2, … for each key.
    pub value: i64,
}

/// Times of a Poisson process, in nanoseconds.
struct Poisson {
    rng: Stream,
    rate_per_s: f64,
    now_ns: f64,
}

impl Poisson {
    const fn new(rng: Stream, rate_per_s: f64) -> Self {
        Self { rng, rate_per_s, now_ns: 0.0 }
    }

    fn every_ms(rng: Stream, mean_ms: u64) -> Self {
        let rate = if mean_ms == 0 { 0.0 } else { 1e3 / mean_ms as f64 };
        Self::new(rng, rate)
    }
}

impl Iterator for Poisson {
    type Item = u64;

    fn next(&mut self) -> Option<u64> {
        if self.rate_per_s <= 0.0 {
            return None;
        }
        // 1 - u lies in (0, 1], so the logarithm is finite.
        let u: f64 = self.rng.random();
        self.now_ns += -(1.0 - u).ln() / self.rate_per_s * NS_PER_S;
        #[allow(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "positive, and below 2^63 ns (292 years) in any run"
        )]
        Some(self.now_ns as u64)
    }
}

/// The sends of a run, in time order, up to its time limit.
pub struct SendSchedule {
    times: Poisson,
    producer_rng: Stream,
    key_rng: Stream,
    producers: usize,
    next_value: Vec<i64>,
    limit_ns: u64,
}

impl SendSchedule {
    /// The schedule of `plan`, which must be valid, under `seed`.
    pub fn new(plan: &QueuePlan, seed: u64) -> Self {
        Self {
            times: Poisson::new(stream(seed, "queue/send/time"), plan.send_rate_per_s()),
            producer_rng: stream(seed, "queue/send/producer"),
            key_rng: stream(seed, "queue/send/key"),
            producers: plan.producers as usize,
            next_value: vec![0; plan.keys().len()],
            limit_ns: plan.time_limit_ms.saturating_mul(NS_PER_MS),
        }
    }
}

impl Iterator for SendSchedule {
    type Item = PlannedSend;

    fn next(&mut self) -> Option<PlannedSend> {
        let time_ns = self.times.next().filter(|t| *t < self.limit_ns)?;
        let producer = self.producer_rng.random_range(0..self.producers);
        let key = self.key_rng.random_range(0..self.next_value.len());
        let value = self.next_value[key];
        self.next_value[key] += 1;
        Some(PlannedSend { time_ns, producer, key, value })
    }
}

/// What a consumer does next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConsumerAction {
    /// Read what came next.
    Poll,
    /// Read these keys from now on.
    Assign {
        /// Indices into [`QueuePlan::keys`], ascending, at least one.
        keys: Vec<usize>,
        /// From the beginning of each?
        seek_to_beginning: bool,
    },
    /// Be a group member for these topics from now on.
    Subscribe {
        /// Indices into [`QueuePlan::topics`], ascending, at least one.
        topics: Vec<usize>,
    },
    /// Drop the client; a fresh one follows, under a new process number.
    Crash,
}

/// One step of a consumer's schedule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlannedStep {
    /// When, in nanoseconds since the workload started.
    pub time_ns: u64,
    /// What.
    pub action: ConsumerAction,
}

/// The steps of one consumer, in time order, up to the run's time limit. The first, and each
/// that follows a crash, is an assign or a subscribe.
pub struct ConsumerSchedule {
    polls: iter::Peekable<Poisson>,
    reassigns: iter::Peekable<Poisson>,
    crashes: iter::Peekable<Poisson>,
    choice_rng: Stream,
    /// How many keys, or topics, there are to choose from.
    choices: usize,
    subscribes: bool,
    seek_to_beginning_probability: f64,
    limit_ns: u64,
    /// When an assign or a subscribe must come before anything else.
    setup_at_ns: Option<u64>,
}

impl ConsumerSchedule {
    /// The schedule of consumer `number` (from 0) of `plan`, which must be valid, under `seed`.
    pub fn new(plan: &QueuePlan, seed: u64, number: u32) -> Self {
        let named = |what: &str| stream(seed, &format!("queue/consumer/{number}/{what}"));
        let consumer = &plan.consumer;
        let subscribes = consumer.subscribes(number);
        let reassigns = Poisson::every_ms(named("reassign"), consumer.reassign_every_ms);
        Self {
            polls: Poisson::new(named("poll"), plan.poll_rate_per_s()).peekable(),
            reassigns: reassigns.peekable(),
            crashes: Poisson::every_ms(named("crash"), consumer.crash_every_ms).peekable(),
            choice_rng: named("choice"),
            choices: if subscribes { plan.topics.len() } else { plan.keys().len() },
            subscribes,
            seek_to_beginning_probability: consumer.seek_to_beginning_probability,
            limit_ns: plan.time_limit_ms.saturating_mul(NS_PER_MS),
            setup_at_ns: Some(0),
        }
    }

    /// A subset that is not empty: its size is uniform, then its members.
    fn subset(&mut self) -> Vec<usize> {
        let mut all: Vec<usize> = (0..self.choices).collect();
        let size = self.choice_rng.random_range(1..=self.choices);
        all.shuffle(&mut self.choice_rng);
        all.truncate(size);
        all.sort_unstable();
        all
    }

    fn setup(&mut self) -> ConsumerAction {
        let chosen = self.subset();
        if self.subscribes {
            ConsumerAction::Subscribe { topics: chosen }
        } else {
            let p = self.seek_to_beginning_probability;
            ConsumerAction::Assign {
                keys: chosen,
                seek_to_beginning: self.choice_rng.random_bool(p),
            }
        }
    }
}

impl Iterator for ConsumerSchedule {
    type Item = PlannedStep;

    fn next(&mut self) -> Option<PlannedStep> {
        if let Some(time_ns) = self.setup_at_ns.take() {
            let action = self.setup();
            return Some(PlannedStep { time_ns, action });
        }
        let at = |times: &mut iter::Peekable<Poisson>| times.peek().copied().unwrap_or(u64::MAX);
        let (poll, reassign, crash) =
            (at(&mut self.polls), at(&mut self.reassigns), at(&mut self.crashes));
        let time_ns = poll.min(reassign).min(crash);
        // Without polls nothing is asked that anyone could see.
        if time_ns >= self.limit_ns || poll == u64::MAX {
            return None;
        }
        let action = if time_ns == crash {
            self.crashes.next();
            self.setup_at_ns = Some(time_ns);
            ConsumerAction::Crash
        } else if time_ns == reassign {
            self.reassigns.next();
            self.setup()
        } else {
            self.polls.next();
            ConsumerAction::Poll
        };
        Some(PlannedStep { time_ns, action })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;
    use crate::plan::{ConsumerMode, ConsumerPlan};

    fn plans() -> impl Strategy<Value = QueuePlan> {
        (1..4_usize, 1..5_u32, 1..6_u32, 1..5_u32, 10.0..3000.0_f64, 0.05..0.9_f64).prop_map(
            |(topics, partitions, producers, consumers, rate, share)| QueuePlan {
                topics: (0..topics).map(|t| format!("t{t}")).collect(),
                partitions_per_topic: partitions,
                producers,
                consumers,
                rate_per_s: rate,
                poll_share: share,
                time_limit_ms: 3_000,
                consumer: ConsumerPlan {
                    reassign_every_ms: 300,
                    crash_every_ms: 700,
                    ..ConsumerPlan::default()
                },
                ..QueuePlan::default()
            },
        )
    }

    proptest! {
        #[test]
        fn one_seed_gives_one_schedule(plan in plans(), seed in any::<u64>()) {
            let sends: Vec<_> = SendSchedule::new(&plan, seed).collect();
            prop_assert_eq!(&sends, &SendSchedule::new(&plan, seed).collect::<Vec<_>>());
            let steps: Vec<_> = ConsumerSchedule::new(&plan, seed, 0).collect();
            prop_assert_eq!(steps, ConsumerSchedule::new(&plan, seed, 0).collect::<Vec<_>>());
        }

        #[test]
        fn values_of_a_key_count_up_from_zero_and_times_never_go_back(
            plan in plans(), seed in any::<u64>()
        ) {
            let keys = plan.keys().len();
            let mut next = BTreeMap::new();
            let mut last_ns = 0;
            for send in SendSchedule::new(&plan, seed) {
                let value = next.entry(send.key).or_insert(0);
                prop_assert_eq!(send.value, *value);
                *value += 1;
                prop_assert!(send.time_ns >= last_ns && send.time_ns < 3_000_000_000);
                last_ns = send.time_ns;
                prop_assert!(send.key < keys && send.producer < plan.producers as usize);
            }
        }

        #[test]
        fn a_consumer_is_set_up_before_it_polls(
            plan in plans(), seed in any::<u64>(), number in 0..2_u32
        ) {
            let mut ready = false;
            let mut last_ns = 0;
            for step in ConsumerSchedule::new(&plan, seed, number) {
                prop_assert!(step.time_ns >= last_ns);
                last_ns = step.time_ns;
                match step.action {
                    ConsumerAction::Poll => prop_assert!(ready),
                    ConsumerAction::Crash => {
                        prop_assert!(ready);
                        ready = false;
                    }
                    ConsumerAction::Assign { keys, .. } => {
                        prop_assert!(!plan.consumer.subscribes(number));
                        prop_assert!(!keys.is_empty() && keys.is_sorted());
                        prop_assert!(keys.iter().all(|k| *k < plan.keys().len()));
                        ready = true;
                    }
                    ConsumerAction::Subscribe { topics } => {
                        prop_assert!(plan.consumer.subscribes(number));
                        prop_assert!(!topics.is_empty() && topics.is_sorted());
                        prop_assert!(topics.iter().all(|t| *t < plan.topics.len()));
                        ready = true;
                    }
                }
            }
        }

        #[test]
        fn consumers_do_not_shift_the_sends(plan in plans(), seed in any::<u64>()) {
            let before: Vec<_> = SendSchedule::new(&plan, seed).collect();
            let other = QueuePlan {
                consumers: plan.consumers + 1,
                consumer: ConsumerPlan { crash_every_ms: 0, ..plan.consumer.clone() },
                ..plan
            };
            prop_assert_eq!(before, SendSchedule::new(&other, seed).collect::<Vec<_>>());
        }
    }

    #[test]
    fn the_rate_is_kept() {
        let plan = QueuePlan { rate_per_s: 5_000.0, time_limit_ms: 20_000, ..QueuePlan::default() };
        let sends = SendSchedule::new(&plan, 1).count() as f64;
        // 90,000 expected; five standard deviations of a Poisson count.
        assert!((sends - 90_000.0).abs() < 5.0 * 90_000_f64.sqrt(), "{sends}");
        let polls: usize = (0..plan.consumers)
            .map(|n| {
                ConsumerSchedule::new(&plan, 1, n)
                    .filter(|s| s.action == ConsumerAction::Poll)
                    .count()
            })
            .sum();
        assert!((polls as f64 - 10_000.0).abs() < 5.0 * 10_000_f64.sqrt(), "{polls}");
    }

    #[test]
    fn what_is_switched_off_does_not_happen() {
        let plan = QueuePlan {
            consumer: ConsumerPlan {
                mode: ConsumerMode::Assign,
                reassign_every_ms: 0,
                crash_every_ms: 0,
                ..ConsumerPlan::default()
            },
            ..QueuePlan::default()
        };
        let setups = ConsumerSchedule::new(&plan, 3, 0)
            .filter(|step| step.action != ConsumerAction::Poll)
            .count();
        assert_eq!(setups, 1);
    }
}
