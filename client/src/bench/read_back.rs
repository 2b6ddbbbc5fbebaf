//! Reading all of a topic.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use rdkafka::consumer::{BaseConsumer, Consumer as _, ConsumerContext};
use rdkafka::error::KafkaError;
use rdkafka::{ClientConfig, Offset, TopicPartitionList};

use super::{BenchError, BenchTopic, driven, given_up, part_with, refused_settings, settings};
use crate::logs;
use crate::outcome::{self, Aftermath};
use crate::stop::Stop;

/// Longest wait of one poll.
const POLL: Duration = Duration::from_millis(50);

/// How a topic is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadBack {
    /// Records that must be there.
    pub at_least: u64,
    /// It is read again and again until this much time was measured…
    pub enough: Duration,
    /// … or this much has passed, connecting included.
    pub at_most: Duration,
    /// Longest time to read it once.
    pub limit: Duration,
}

/// What reading a topic came to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Consumed {
    /// Records read.
    pub records: u64,
    /// Their payloads, bytes.
    pub bytes: u64,
    /// From the first record to the last of each pass, summed up: connecting and going back to the
    /// beginning are left out.
    pub took: Duration,
    /// How often the whole topic was read.
    pub passes: u32,
}

/// Reads every partition of `topic` from its beginning to its end, again and again until enough
/// time was measured.
///
/// # Errors
/// [`BenchError::Cluster`] where a partition cannot be read, the end is not reached within the
/// limit, or fewer records are there than must be: a fast reader of less than was acknowledged is
/// not fast.
pub async fn consume(topic: BenchTopic, how: ReadBack) -> Result<Consumed, BenchError> {
    driven("bench-consume", move |stop| run(&topic, how, stop)).await
}

fn run(topic: &BenchTopic, how: ReadBack, stop: &Stop) -> Result<Consumed, BenchError> {
    let consumer = start(topic, &settings::bulk_reader(&topic.bootstrap))?;
    let result = read_repeatedly(topic, &consumer, how, stop);
    part_with(consumer);
    result
}

fn read_repeatedly(
    topic: &BenchTopic,
    consumer: &Reader,
    how: ReadBack,
    stop: &Stop,
) -> Result<Consumed, BenchError> {
    let begun = Instant::now();
    let mut all = Consumed::default();
    loop {
        let mut seen = Seen::default();
        read(topic, consumer, &mut seen, Instant::now() + how.limit, stop)?;
        if seen.records < how.at_least {
            return Err(BenchError::Cluster(format!(
                "{} records are there, but {} were acknowledged",
                seen.records, how.at_least
            )));
        }
        let (Some(first), Some(last)) = (seen.first, seen.last) else {
            return Err(BenchError::Cluster("the topic holds no records".to_owned()));
        };
        all.records += seen.records;
        all.bytes += seen.bytes;
        all.took += last - first;
        all.passes += 1;
        if all.took >= how.enough || begun.elapsed() >= how.at_most {
            return Ok(all);
        }
        from_beginning(topic, consumer)?;
    }
}

fn read(
    topic: &BenchTopic,
    consumer: &Reader,
    seen: &mut Seen,
    until: Instant,
    stop: &Stop,
) -> Result<(), BenchError> {
    let mut ended = BTreeSet::new();
    let mut said = String::new();
    while ended.len() < usize::try_from(topic.partitions).unwrap_or(0) {
        match consumer.poll(POLL) {
            Some(Ok(message)) => seen.record(message.payload_len()),
            // Comes after the last record before the end.
            Some(Err(KafkaError::PartitionEOF(partition))) => drop(ended.insert(partition)),
            Some(Err(error)) => said = tolerated(&error)?,
            None => {}
        }
        if stop.is_stopped() {
            return Err(given_up());
        }
        if Instant::now() >= until {
            let hint = if said.is_empty() { said } else { format!("; last error: {said}") };
            return Err(BenchError::Cluster(format!(
                "only {} of {} partitions were read to their end in time, {} records in all{hint}",
                ended.len(),
                topic.partitions,
                seen.records
            )));
        }
    }
    Ok(())
}

#[derive(Debug, Default)]
struct Seen {
    records: u64,
    bytes: u64,
    first: Option<Instant>,
    last: Option<Instant>,
}

impl Seen {
    fn record(&mut self, bytes: usize) {
        let now = Instant::now();
        self.records += 1;
        self.bytes += bytes as u64;
        self.first.get_or_insert(now);
        self.last = Some(now);
    }
}

/// A consumer of the load drivers.
pub(super) type Reader = BaseConsumer<Quiet>;

/// Starts a reader of all partitions of `topic`, from their beginnings.
///
/// # Errors
/// librdkafka refuses the settings.
pub(super) fn start(topic: &BenchTopic, config: &ClientConfig) -> Result<Reader, BenchError> {
    let consumer: Reader =
        config.create_with_context(Quiet).map_err(refused_settings("consumer"))?;
    from_beginning(topic, &consumer)?;
    Ok(consumer)
}

fn from_beginning(topic: &BenchTopic, consumer: &Reader) -> Result<(), BenchError> {
    let mut partitions = TopicPartitionList::new();
    for partition in 0..topic.partitions {
        partitions
            .add_partition_offset(&topic.name, partition, Offset::Beginning)
            .map_err(refused_settings("consumer"))?;
    }
    consumer.assign(&partitions).map_err(refused_settings("consumer"))
}

/// What a consumer gets over by itself, in words.
///
/// # Errors
/// What it does not.
pub(super) fn tolerated(error: &KafkaError) -> Result<String, BenchError> {
    let text = outcome::error_text(error);
    match outcome::of_poll(error) {
        Aftermath::Lost => Err(BenchError::Cluster(format!("a partition cannot be read: {text}"))),
        Aftermath::GoesOn => Ok(text),
    }
}

/// Passes log lines on, and does nothing else.
pub(super) struct Quiet;

logs::forwards_logs!(Quiet);

impl ConsumerContext for Quiet {}
