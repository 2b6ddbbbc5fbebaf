//! Stock Kafka on the `namespaces` backend: real brokers, and what the probe sees of them.
//! `HIGHWATER_KAFKA=4.1.1` runs it with another version.

#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::print_stderr,
    reason = "a test may fail loudly"
)]

#[path = "contract/requirements.rs"]
mod requirements;

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use cluster::SystemOptions;
use cluster::kafka::{DEFAULT_VERSION, Distribution, FAULT_FRIENDLY, Kafka};
use cluster::namespaces::{Namespaces, sandbox};
use cluster::probe::{self, End, TopicSpec};
use cluster::{Backend, Cluster, NodeName, NodeSpec, Role};
use history::Key;
use libtest_mimic::{Arguments, Failed, Trial};
use requirements::not_run;

/// For whatever a healthy cluster does in seconds, on a machine that is busy.
const PATIENCE: Duration = Duration::from_secs(90);
/// For what is known not to come.
const IMPATIENCE: Duration = Duration::from_secs(1);

type Case = fn(Cluster) -> Pin<Box<dyn Future<Output = Cluster>>>;

fn main() {
    let arguments = Arguments { test_threads: Some(1), ..Arguments::from_args() };
    let refused = |requirement: &str, reason: &str| -> ! {
        libtest_mimic::run(&arguments, vec![not_run(requirement, reason)]).exit()
    };
    // First outside, where there is a network to fetch from; inside it is found in the cache.
    let home = std::env::var_os("KAFKA_HOME").map(std::path::PathBuf::from);
    let distribution =
        match Distribution::resolve(&version(), home.as_deref(), &mut |text| eprintln!("{text}")) {
            Ok(distribution) => distribution,
            Err(error) => refused("kafka", &error.to_string()),
        };
    if !sandbox::is_inside() {
        match sandbox::run_inside() {
            Ok(status) => std::process::exit(status.code().unwrap_or(101)),
            Err(error) => refused("namespaces", &error.to_string()),
        }
    }
    sandbox::settle_inside().expect("the sandbox can be settled in");
    let cases: [(&str, &[Role], Case); 2] = [
        ("three_combined_nodes", &[Role::Combined; 3], |it| Box::pin(three_combined_nodes(it))),
        ("a_broker_and_a_controller", &[Role::Broker, Role::Controller], |it| {
            Box::pin(a_broker_and_a_controller(it))
        }),
    ];
    let trials = cases.into_iter().map(|(name, roles, case)| {
        let distribution = distribution.clone();
        Trial::test(name, move || run(distribution, roles, case))
    });
    libtest_mimic::run(&arguments, trials.collect()).exit();
}

fn version() -> String {
    std::env::var("HIGHWATER_KAFKA").unwrap_or_else(|_| DEFAULT_VERSION.to_owned())
}

fn run(distribution: Distribution, roles: &'static [Role], case: Case) -> Result<(), Failed> {
    let dir = tempfile::tempdir()?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        let backend: Arc<dyn Backend> = Arc::new(Namespaces::new());
        let options = SystemOptions {
            overrides: [("num.recovery.threads.per.data.dir".into(), "3".into())].into(),
            stock_timeouts: false,
        };
        let system = Box::new(Kafka::new(distribution, options, 7));
        let roles: Vec<_> = (1..).map(NodeName::new).zip(roles.iter().copied()).collect();
        let cluster = Cluster::create(system, backend, &roles, dir.path(), keys().into()).await?;
        let begun = Instant::now();
        cluster.start_all().await?;
        probe::await_brokers(cluster.nodes(), PATIENCE).await?;
        eprintln!("{} nodes are up after {:.1} s", roles.len(), begun.elapsed().as_secs_f64());
        let cluster = case(cluster).await;
        cluster.destroy().await.map_err(Failed::from)
    })
}

fn keys() -> [Key; 2] {
    [Key::new("orders", 0), Key::new("orders", 1)]
}

async fn make_topic(cluster: &Cluster, replication_factor: i16) {
    let topic = TopicSpec {
        name: "orders".into(),
        partitions: 2,
        replication_factor,
        config: [("min.insync.replicas".to_owned(), "1".to_owned())].into(),
    };
    let nodes = cluster.nodes();
    // Twice: a topic that exists is what was wanted.
    for _ in 0..2 {
        let made = probe::create_topics(nodes, std::slice::from_ref(&topic), PATIENCE).await;
        made.expect("the topic can be made");
    }
    probe::await_full_isr(nodes, &keys(), PATIENCE).await.expect("full ISR");
}

async fn three_combined_nodes(cluster: Cluster) -> Cluster {
    let nodes = cluster.nodes();
    refuses_what_cannot_be(nodes).await;
    make_topic(&cluster, 3).await;
    let all = [1, 2, 3].map(NodeName::new).into();
    let view = cluster.view().await;
    for key in &keys() {
        let seen = &view.keys[key];
        assert!(seen.leader.is_some() && seen.leader_epoch >= 0, "{seen:?}");
        assert_eq!((&seen.isr, &seen.replicas, seen.offline.len()), (&all, &all, 0));
    }
    assert!(view.answers.values().all(Result::is_ok), "{view:?}");

    let quorum = probe::quorum_view(nodes).await.expect("an active controller");
    assert_eq!(quorum.leader, view.controller);
    assert_eq!(quorum.voters.keys().copied().collect::<std::collections::BTreeSet<_>>(), all);
    assert!(quorum.voters.values().any(|end| *end > 0), "{quorum:?}");

    every_replica_tells_its_log_end(&cluster).await;
    settings_are_in_force(&cluster).await;
    a_node_that_dies_is_seen_and_comes_back(&cluster).await;
    cluster
}

async fn refuses_what_cannot_be(nodes: &[NodeSpec]) {
    let topic = TopicSpec {
        name: "or/ders".into(),
        partitions: 1,
        replication_factor: 1,
        config: BTreeMap::new(),
    };
    let error = probe::create_topics(nodes, &[topic], PATIENCE).await.expect_err("a bad name");
    assert!(error.contains("topic or/ders is refused"), "{error}");
    let unknown = [Key::new("nobody-made-this", 0)];
    let error = probe::await_full_isr(nodes, &unknown, IMPATIENCE).await.expect_err("no such key");
    assert!(error.contains("n1 does not know nobody-made-this-0"), "{error}");
    assert!(error.contains("stdout.log"), "it shows the end of a log: {error}");
}

async fn every_replica_tells_its_log_end(cluster: &Cluster) {
    let view = cluster.view().await;
    for node in cluster.nodes() {
        // A broker tells of a partition's state a little before its replica is there.
        let begun = Instant::now();
        let ends = loop {
            let ends = probe::offsets(node, &keys(), End::Log).await.expect("an answer");
            if ends.values().all(|end| *end == Ok(0)) || begun.elapsed() > PATIENCE {
                break ends;
            }
        };
        let marks = probe::offsets(node, &keys(), End::HighWatermark).await.expect("an answer");
        for key in &keys() {
            assert_eq!(ends[key], Ok(0), "{} of {}", key, node.name);
            let is_leader = view.keys[key].leader == Some(node.name);
            assert_eq!(marks[key].is_ok(), is_leader, "{key} of {}: {:?}", node.name, marks[key]);
        }
    }
}

/// What the brokers say is in force is what the rig wrote; and their own defaults are those that
/// our table gives for Kafka's.
async fn settings_are_in_force(cluster: &Cluster) {
    let told = cluster.settings();
    for node in cluster.nodes() {
        let in_force = probe::effective_settings(node, PATIENCE).await.expect("settings");
        assert!(in_force.len() > 200, "only {} settings", in_force.len());
        for (key, value) in &told[&node.name] {
            let setting = in_force.get(key).unwrap_or_else(|| panic!("Kafka knows no {key}"));
            assert_eq!(setting.value.as_ref(), Some(value), "{key}");
        }
        let ours = FAULT_FRIENDLY.iter().filter(|_| version() == DEFAULT_VERSION);
        for default in ours {
            let kafkas = in_force[default.key].default.as_deref();
            assert_eq!(kafkas, Some(default.kafka), "Kafka's default of {}", default.key);
        }
    }
}

async fn a_node_that_dies_is_seen_and_comes_back(cluster: &Cluster) {
    let nodes = cluster.nodes();
    let view = cluster.view().await;
    let active = view.controller.expect("an active controller");
    cluster.kill(active).await.expect("it can be killed");
    let begun = Instant::now();
    let view = cluster.view().await;
    assert!(begun.elapsed() < Duration::from_secs(4), "who is dead must not hold us up");
    assert!(view.answers[&active].is_err() && view.controller != Some(active), "{view:?}");

    let report = probe::await_recovery(nodes, &keys(), IMPATIENCE).await;
    assert!(!report.is_recovered() && report.silent.contains(&active), "{report:?}");
    assert!(report.waited_ms >= report.deadline_ms, "{report:?}");

    cluster.start(active).await.expect("it starts again");
    let report = probe::await_recovery(nodes, &keys(), PATIENCE).await;
    assert!(report.is_recovered(), "{report:?}");
    probe::await_full_isr(nodes, &keys(), PATIENCE).await.expect("full ISR");
}

async fn a_broker_and_a_controller(cluster: Cluster) -> Cluster {
    make_topic(&cluster, 1).await;
    let view = cluster.view().await;
    assert_eq!(view.controller, Some(NodeName::new(2)));
    assert_eq!(view.answers.len(), 1, "only the broker is asked for partitions");
    let quorum = probe::quorum_view(cluster.nodes()).await.expect("an active controller");
    assert!(quorum.observers.contains_key(&NodeName::new(1)), "{quorum:?}");
    let told = cluster.settings();
    for node in cluster.nodes() {
        let in_force = probe::effective_settings(node, PATIENCE).await.expect("settings");
        for (key, value) in &told[&node.name] {
            assert_eq!(in_force[key].value.as_ref(), Some(value), "{key} of {}", node.name);
        }
    }
    let report = probe::await_recovery(cluster.nodes(), &keys(), PATIENCE).await;
    assert!(report.is_recovered(), "{report:?}");
    cluster
}
