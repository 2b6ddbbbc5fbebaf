//! The load drivers of the bench against librdkafka's own mock brokers: what they count is there,
//! and what does not answer is an error in time. How fast it is, nobody asks here.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]
use std::time::{Duration, Instant};

use client::bench::{
    Beacon, BenchError, BenchTopic, Full, Pace, ReadBack, consume, latency, produce,
};
use rdkafka::mocking::MockCluster;
use rdkafka::producer::DefaultProducerContext;
use rdkafka::types::{RDKafkaApiKey, RDKafkaRespErr};

const PARTITIONS: i32 = 3;

fn cluster() -> (MockCluster<'static, DefaultProducerContext>, BenchTopic) {
    let mock = MockCluster::new(3).unwrap();
    mock.create_topic("bench", PARTITIONS, 3).unwrap();
    let bootstrap = mock.bootstrap_servers();
    (mock, BenchTopic { bootstrap, name: "bench".to_owned(), partitions: PARTITIONS })
}

fn a_little(record_bytes: usize) -> Full {
    Full {
        record_bytes,
        warm_up: Duration::from_millis(100),
        duration: Duration::from_millis(300),
        seed: 7,
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_acknowledged_is_counted_and_read_back() {
    let (_mock, topic) = cluster();
    let produced = produce(topic.clone(), a_little(100)).await.unwrap();
    assert!(produced.acked_records > 0);
    assert_eq!(produced.acked_bytes, produced.acked_records * 100);
    assert!(produced.acked_records_in_all >= produced.acked_records);
    assert!(produced.ack.p50_us <= produced.ack.p99_us);
    // The mock drops its oldest records, so less than all is there: said, not passed over.
    let once = ReadBack {
        at_least: 1,
        enough: Duration::ZERO,
        at_most: Duration::from_secs(30),
        limit: Duration::from_secs(30),
    };
    let read = consume(topic.clone(), once).await.unwrap();
    assert!(read.records > 0);
    assert_eq!((read.bytes, read.passes), (read.records * 100, 1));
    let again = ReadBack { enough: read.took * 5, ..once };
    let more_often = consume(topic.clone(), again).await.unwrap();
    assert!(more_often.passes > 1);
    assert_eq!(more_often.records, read.records * u64::from(more_often.passes));
    let more = consume(topic, ReadBack { at_least: u64::MAX, ..once }).await.unwrap_err();
    assert!(more.to_string().contains("records are there, but"), "{more}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refused_send_ends_the_measurement_with_its_code() {
    let (mock, topic) = cluster();
    let refusals = [RDKafkaRespErr::RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED; 50];
    mock.request_errors(RDKafkaApiKey::Produce, &refusals);
    let error = produce(topic, a_little(1000)).await.unwrap_err();
    assert!(matches!(error, BenchError::Cluster(_)), "{error:?}");
    assert!(error.to_string().contains("a send failed"), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_record_of_a_pace_is_acknowledged_and_read() {
    let (_mock, topic) = cluster();
    let pace = Pace {
        rate_per_s: 200,
        record_bytes: 1024,
        warm_up: Duration::from_millis(100),
        duration: Duration::from_millis(500),
        seed: 7,
    };
    let paced = latency(topic.clone(), pace).await.unwrap();
    assert_eq!((paced.ack.count, paced.end_to_end.count), (100, 100));
    let error = latency(topic, pace).await.unwrap_err();
    assert!(error.to_string().contains("is not empty"), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_beacon_is_ok_until_its_leader_is_gone_and_again_once_there_is_another() {
    let (mock, topic) = cluster();
    let beacon = Beacon::idempotent(topic, 1).await.unwrap();
    let limit = Duration::from_secs(30);
    beacon.next_ok(Instant::now(), limit).await.unwrap();
    for broker in 1..=3 {
        mock.broker_down(broker).unwrap();
    }
    let down = Instant::now();
    let silent = beacon.next_ok(down, Duration::from_millis(300)).await.unwrap_err();
    assert!(silent.to_string().contains("no send was acknowledged within 300 ms"), "{silent}");
    for broker in 1..=3 {
        mock.broker_up(broker).unwrap();
    }
    let again = beacon.next_ok(down, limit).await.unwrap();
    assert!(again > down + Duration::from_millis(300));
}
