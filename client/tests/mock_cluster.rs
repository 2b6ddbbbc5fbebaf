//! The clients against librdkafka's own mock brokers: not Kafka, but enough to see that what is
//! recorded is a well-formed history and that errors end operations as the table says.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use client::{QueueClients, Stop};
use history::{Draft, Function, Kind, MicroOp, Process, RebalanceKind, Record, Value};
use rdkafka::ClientConfig;
use rdkafka::mocking::MockCluster;
use rdkafka::producer::{BaseProducer, BaseRecord, DefaultProducerContext, Producer as _};
use rdkafka::types::{RDKafkaApiKey, RDKafkaRespErr};
use workloads::{Acks, ConsumerMode, ConsumerPlan, ProducerPlan, QueuePlan};

struct Recorder {
    began: Instant,
    events: Mutex<Vec<Draft>>,
}

impl Record for Recorder {
    fn record(&self, draft: Draft) -> u64 {
        let mut events = self.events.lock().unwrap();
        events.push(draft);
        events.len() as u64 - 1
    }

    fn now_ns(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_nanos()).unwrap()
    }
}

type Mock = MockCluster<'static, DefaultProducerContext>;

struct Bench {
    mock: Mock,
    plan: QueuePlan,
    recorder: Arc<Recorder>,
    clients: QueueClients,
}

impl Bench {
    fn new(plan: QueuePlan) -> Self {
        let mock = MockCluster::new(3).unwrap();
        for topic in &plan.topics {
            let partitions = i32::try_from(plan.partitions_per_topic).unwrap();
            mock.create_topic(topic, partitions, 3).unwrap();
        }
        let recorder = Arc::new(Recorder { began: Instant::now(), events: Mutex::default() });
        let bootstrap = mock.bootstrap_servers();
        let sink: Arc<dyn Record> = recorder.clone();
        let clients = QueueClients::new(plan.clone(), &bootstrap, sink).unwrap();
        Self { mock, plan, recorder, clients }
    }

    fn events(&self) -> Vec<Draft> {
        self.recorder.events.lock().unwrap().clone()
    }
}

fn short_plan() -> QueuePlan {
    QueuePlan {
        partitions_per_topic: 2,
        rate_per_s: 500.0,
        time_limit_ms: 2_000,
        consumer: ConsumerPlan {
            reassign_every_ms: 500,
            crash_every_ms: 700,
            ..ConsumerPlan::default()
        },
        ..QueuePlan::default()
    }
}

/// Each process has at most one operation open, completions follow their invocations, and a
/// process whose operation ended info is never used again.
fn assert_well_formed(events: &[Draft]) {
    let mut open: BTreeMap<Process, Function> = BTreeMap::new();
    let mut retired = BTreeSet::new();
    // What is observed beside operations belongs to no process of theirs.
    let operations = events.iter().enumerate().filter(|(_, one)| one.process != Process::Observer);
    for (index, event) in operations {
        let process = event.process;
        assert!(!retired.contains(&process), "{index}: {process:?} is retired");
        if event.kind == Kind::Invoke {
            let before = open.insert(process, event.function.clone());
            assert_eq!(before, None, "{index}: {process:?} has one open");
        } else {
            let invoked = open.remove(&process);
            assert_eq!(invoked.as_ref(), Some(&event.function), "{index}");
            if event.kind == Kind::Info {
                retired.insert(process);
            }
            assert_eq!(
                event.error.is_some(),
                event.kind != Kind::Ok && event.function != Function::Crash,
                "{index}: {event:?}"
            );
        }
    }
    assert_eq!(open, BTreeMap::new(), "operations are still open");
}

/// The sends that ended `kind`: key, value, offset.
fn sends(events: &[Draft], kind: Kind) -> Vec<(String, i64, Option<i64>)> {
    events
        .iter()
        .filter(|event| event.function == Function::Send && event.kind == kind)
        .flat_map(|event| match &event.value {
            Value::Ops(ops) => ops.clone(),
            other => panic!("a send carries {other:?}"),
        })
        .map(|op| match op {
            MicroOp::Send { key, value } => (key.to_string(), value, None),
            MicroOp::Sent { key, offset, value } => (key.to_string(), value, offset),
            other => panic!("a send carries {other:?}"),
        })
        .collect()
}

/// Every record that an ok poll returned.
fn reads(events: &[Draft]) -> BTreeSet<(String, i64, i64)> {
    let mut seen = BTreeSet::new();
    for event in events {
        let Value::Ops(ops) = &event.value else {
            continue;
        };
        for op in ops {
            if let MicroOp::Polled(records) = op {
                for (key, pairs) in records {
                    seen.extend(pairs.iter().map(|(o, v)| (key.to_string(), *o, *v)));
                }
            }
        }
    }
    seen
}

fn errors(events: &[Draft], function: &Function) -> BTreeSet<(Kind, String)> {
    events
        .iter()
        .filter(|event| event.function == *function)
        .filter_map(|event| Some((event.kind, event.error.clone()?)))
        .collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_healthy_run_is_read_back_to_its_last_value() {
    let bench = Bench::new(short_plan());
    let stop = Stop::new();
    let summary = bench.clients.run(7, &stop).await.unwrap();
    assert_eq!(summary.given_up_sends, 0);
    assert_eq!(summary.lost_consumers, 0);
    let keys = bench.plan.keys();
    let limit = Duration::from_secs(20);
    let closing = bench.clients.closing_writes(&keys, limit, &stop).await.unwrap();
    let unread = bench.clients.final_reads(&keys, &closing, limit, &stop).await.unwrap();
    assert_eq!(unread, BTreeMap::new());

    let events = bench.events();
    assert_well_formed(&events);
    let sent = sends(&events, Kind::Invoke);
    assert!(sent.len() > 600, "{} sends", sent.len());
    let values: BTreeSet<_> = sent.iter().map(|(key, value, _)| (key, value)).collect();
    assert_eq!(values.len(), sent.len(), "a value was used twice");
    let acked = sends(&events, Kind::Ok);
    assert_eq!(acked.len(), sent.len());
    let seen = reads(&events);
    for (key, value, offset) in &acked {
        let offset = offset.expect("the mock answers with offsets");
        assert!(seen.contains(&(key.clone(), offset, *value)), "{key} {value}");
    }
    for (key, write) in &closing {
        let write = write.as_ref().unwrap();
        let last = acked.iter().filter(|(k, ..)| k == key.as_str());
        assert_eq!(last.map(|(_, value, _)| *value).max(), Some(write.value));
    }
    let live = bench.clients.live();
    assert_eq!(live.outstanding.load(std::sync::atomic::Ordering::Relaxed), 0);
    for progress in live.keys() {
        use std::sync::atomic::Ordering::Relaxed;
        let (acked, read) = (&progress.acked_end, &progress.read_end);
        assert_eq!(acked.load(Relaxed), read.load(Relaxed), "{}", progress.key);
    }
    // Both kinds of consumers, and crashes, took part.
    for function in [Function::Assign, Function::Subscribe, Function::Crash] {
        assert!(events.iter().any(|event| event.function == function));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn group_members_record_their_rebalances_and_read() {
    let bench = Bench::new(QueuePlan {
        consumers: 2,
        // The mock's groups wait three seconds for members.
        time_limit_ms: 7_000,
        rate_per_s: 200.0,
        consumer: ConsumerPlan {
            mode: ConsumerMode::Subscribe,
            reassign_every_ms: 0,
            crash_every_ms: 0,
            ..ConsumerPlan::default()
        },
        ..short_plan()
    });
    bench.clients.run(3, &Stop::new()).await.unwrap();
    let events = bench.events();
    assert_well_formed(&events);
    let gained = events
        .iter()
        .flat_map(|event| &event.rebalance_log)
        .filter(|rebalance| rebalance.event == RebalanceKind::Assign)
        .flat_map(|rebalance| rebalance.keys.iter().cloned());
    assert!(gained.count() > 0, "no group member gained a key");
    assert!(!reads(&events).is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_record_that_is_no_integer_ends_a_poll_info_and_leaves_its_key_unread() {
    let bench = Bench::new(QueuePlan {
        topics: vec!["orders".to_owned()],
        time_limit_ms: 300,
        poll_share: 0.0,
        ..short_plan()
    });
    let alien: BaseProducer = ClientConfig::new()
        .set("bootstrap.servers", bench.mock.bootstrap_servers())
        .create()
        .unwrap();
    let record: BaseRecord<'_, (), str> = BaseRecord::to("orders").partition(0).payload("x");
    alien.send(record).map_err(|(error, _)| error).unwrap();
    alien.flush(Duration::from_secs(10)).unwrap();
    let stop = Stop::new();
    bench.clients.run(1, &stop).await.unwrap();
    let keys = bench.plan.keys();
    let limit = Duration::from_secs(4);
    let closing = bench.clients.closing_writes(&keys, limit, &stop).await.unwrap();
    let unread = bench.clients.final_reads(&keys, &closing, limit, &stop).await.unwrap();
    let events = bench.events();
    assert_well_formed(&events);
    assert_eq!(unread.keys().collect::<Vec<_>>(), [&keys[0]]);
    let met = errors(&events, &Function::Poll);
    assert!(
        met.iter()
            .any(|(kind, error)| *kind == Kind::Info && error.starts_with("bad-payload: orders-0")),
        "{met:?}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refusal_that_excludes_an_append_is_a_failure() {
    let bench =
        Bench::new(QueuePlan { producers: 1, poll_share: 0.0, time_limit_ms: 500, ..short_plan() });
    let refusals = [RDKafkaRespErr::RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED; 3];
    bench.mock.request_errors(RDKafkaApiKey::Produce, &refusals);
    bench.clients.run(1, &Stop::new()).await.unwrap();
    let events = bench.events();
    assert_well_formed(&events);
    assert!(!sends(&events, Kind::Fail).is_empty());
    let met = errors(&events, &Function::Send);
    assert!(met.contains(&(Kind::Fail, "topic-authorization-failed".to_owned())), "{met:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_error_that_leaves_it_open_is_info_and_retires_the_process() {
    let bench = Bench::new(QueuePlan {
        producers: 1,
        poll_share: 0.0,
        time_limit_ms: 500,
        producer: ProducerPlan { retries: Some(0), ..ProducerPlan::default() },
        ..short_plan()
    });
    let errors_sent = [
        RDKafkaRespErr::RD_KAFKA_RESP_ERR_NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        RDKafkaRespErr::RD_KAFKA_RESP_ERR_MSG_SIZE_TOO_LARGE,
        RDKafkaRespErr::RD_KAFKA_RESP_ERR_NOT_ENOUGH_REPLICAS,
    ];
    bench.mock.request_errors(RDKafkaApiKey::Produce, &errors_sent);
    bench.clients.run(1, &Stop::new()).await.unwrap();
    let events = bench.events();
    assert_well_formed(&events);
    assert_eq!(sends(&events, Kind::Fail), []);
    let met = errors(&events, &Function::Send);
    for code in
        ["not-enough-replicas-after-append", "message-size-too-large", "not-enough-replicas"]
    {
        assert!(met.contains(&(Kind::Info, code.to_owned())), "{met:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_producer_that_met_a_fatal_error_is_replaced() {
    let bench = Bench::new(QueuePlan {
        producers: 1,
        poll_share: 0.0,
        time_limit_ms: 2_000,
        ..short_plan()
    });
    let desync = [RDKafkaRespErr::RD_KAFKA_RESP_ERR_OUT_OF_ORDER_SEQUENCE_NUMBER];
    bench.mock.request_errors(RDKafkaApiKey::Produce, &desync);
    bench.clients.run(1, &Stop::new()).await.unwrap();
    let events = bench.events();
    assert_well_formed(&events);
    let met = errors(&events, &Function::Send);
    assert!(met.contains(&(Kind::Info, "out-of-order-sequence-number".to_owned())), "{met:?}");
    assert!(met.contains(&(Kind::Fail, "fatal".to_owned())), "{met:?}");
    let last = events.iter().rfind(|event| event.kind != Kind::Invoke);
    assert_eq!(last.map(|event| event.kind), Some(Kind::Ok), "{met:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sends_that_nobody_acknowledges_are_info() {
    let bench = Bench::new(QueuePlan {
        producers: 1,
        poll_share: 0.0,
        time_limit_ms: 300,
        producer: ProducerPlan { acks: Acks::None, ..ProducerPlan::default() },
        ..short_plan()
    });
    bench.clients.run(1, &Stop::new()).await.unwrap();
    let events = bench.events();
    assert_well_formed(&events);
    assert_eq!(sends(&events, Kind::Ok), []);
    assert!(!sends(&events, Kind::Info).is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_that_is_away_costs_info_and_never_the_run() {
    let bench = Bench::new(QueuePlan {
        time_limit_ms: 1_000,
        max_outstanding: 50,
        producer: ProducerPlan { delivery_timeout_ms: 1_500, ..ProducerPlan::default() },
        ..short_plan()
    });
    bench.mock.broker_down(-1).unwrap();
    let stop = Stop::new();
    bench.clients.run(1, &stop).await.unwrap();
    let keys = bench.plan.keys();
    let limit = Duration::from_millis(500);
    let closing = bench.clients.closing_writes(&keys, limit, &stop).await.unwrap();
    assert!(closing.values().all(Result::is_err), "{closing:?}");
    let unread = bench.clients.final_reads(&keys, &closing, limit, &stop).await.unwrap();
    assert_eq!(unread.len(), keys.len());
    let events = bench.events();
    assert_well_formed(&events);
    assert_eq!(sends(&events, Kind::Ok), []);
    let delayed = &bench.clients.live().delayed_sends;
    assert!(delayed.load(std::sync::atomic::Ordering::Relaxed) > 0);
}

/// Two changes of an assignment within the time a partition takes to stop make librdkafka abort
/// the whole program, unless the client waits in between.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn consumers_may_change_their_minds_quickly() {
    let bench = Bench::new(QueuePlan {
        rate_per_s: 2_000.0,
        poll_share: 0.5,
        time_limit_ms: 3_000,
        consumer: ConsumerPlan {
            mode: ConsumerMode::Assign,
            commits: false,
            reassign_every_ms: 2,
            crash_every_ms: 50,
            ..ConsumerPlan::default()
        },
        ..short_plan()
    });
    bench.clients.run(1, &Stop::new()).await.unwrap();
    let events = bench.events();
    assert_well_formed(&events);
    let assigns =
        events.iter().filter(|event| event.function == Function::Assign && event.kind == Kind::Ok);
    assert!(assigns.count() > 500);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stop_ends_a_long_run_soon() {
    let bench = Bench::new(QueuePlan { time_limit_ms: 600_000, ..short_plan() });
    let stop = Stop::new();
    let stopper = stop.clone();
    tokio::spawn(async move {
        tokio::time::sleep(Duration::from_millis(500)).await;
        stopper.stop();
    });
    let began = Instant::now();
    bench.clients.run(1, &stop).await.unwrap();
    assert!(began.elapsed() < Duration::from_secs(20));
    assert_well_formed(&bench.events());
}

#[test]
fn settings_that_contradict_each_other_are_an_error_before_the_run() {
    let plan = QueuePlan {
        producer: ProducerPlan {
            extra: [("no.such.setting".to_owned(), "1".to_owned())].into(),
            ..ProducerPlan::default()
        },
        ..short_plan()
    };
    let bench = Bench::new(plan);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let error = runtime.block_on(bench.clients.run(1, &Stop::new())).unwrap_err();
    assert!(error.to_string().contains("no.such.setting"), "{error}");
}
