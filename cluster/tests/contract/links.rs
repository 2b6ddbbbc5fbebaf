//! What every backend owes to the network: cuts that hold, one way or both, on connections that
//! stand already, over restarts, and without a trace when healed.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use cluster::network::{Cut, Endpoint, LinkReport, Network, Passes};
use cluster::node::{BROKER_PORT, CLIENT_PORT};
use cluster::{Backend, Launch, NodeName, NodeSpec, Role, Signal};

/// With this variable set, the test program is a node's process, not a test.
const ROLE: &str = "HIGHWATER_TEST_ROLE";
const PATIENCE: Duration = Duration::from_secs(20);

/// Plays a node if this process was started as one; to be called first in `main`.
pub(crate) fn play_role() {
    let Ok(role) = std::env::var(ROLE) else {
        return;
    };
    let mut words = role.split(' ');
    match (words.next(), words.next()) {
        (Some("echo"), None) => {
            let threads = [CLIENT_PORT, BROKER_PORT].map(|port| thread::spawn(move || echo(port)));
            for thread in threads {
                thread.join().expect("an echo thread lives");
            }
        }
        (Some("dial"), Some(address)) => dial(address),
        _ => panic!("no such role: {role}"),
    }
    std::process::exit(0);
}

fn echo(port: u16) {
    let listener = TcpListener::bind((Ipv4Addr::UNSPECIFIED, port)).expect("the port is free");
    for stream in listener.incoming().flatten() {
        thread::spawn(move || {
            let mut writer = stream.try_clone().expect("a socket can be cloned");
            for line in BufReader::new(stream).lines().map_while(Result::ok) {
                if writeln!(writer, "{line}").is_err() {
                    return;
                }
            }
        });
    }
}

/// One connection, one line there and back at a time, each answer told on standard output.
fn dial(address: &str) {
    let begun = Instant::now();
    let stream = loop {
        match TcpStream::connect(address) {
            Ok(stream) => break stream,
            Err(error) => assert!(begun.elapsed() < PATIENCE, "{address}: {error}"),
        }
        thread::sleep(Duration::from_millis(10));
    };
    let mut writer = stream.try_clone().expect("a socket can be cloned");
    let mut answers = BufReader::new(stream).lines();
    for number in 0.. {
        writeln!(writer, "{number}").expect("the connection stands");
        let answer = answers.next().expect("it is not closed").expect("it is not reset");
        println!("answered {answer}");
        thread::sleep(Duration::from_millis(10));
    }
}

/// Three nodes and the network between them.
pub(crate) struct Lan {
    pub(crate) backend: Arc<dyn Backend>,
    pub(crate) nodes: Vec<NodeSpec>,
    pub(crate) network: Network,
    _dir: tempfile::TempDir,
}

impl Lan {
    pub(crate) async fn create(backend: Arc<dyn Backend>) -> Self {
        let dir = tempfile::tempdir().expect("a temporary folder");
        let names: Vec<NodeName> = (1..=3).map(NodeName::new).collect();
        let (addresses, driver) = backend.create_network(&names).await.expect("a network");
        let nodes: Vec<NodeSpec> = names
            .iter()
            .zip(&addresses)
            .map(|(name, address)| NodeSpec {
                name: *name,
                role: Role::Combined,
                address: *address,
                dir: dir.path().join(name.to_string()),
            })
            .collect();
        for node in &nodes {
            for part in [node.config_dir(), node.data_dir(), node.logs_dir()] {
                fs::create_dir_all(part).expect("a folder");
            }
        }
        let by_name: BTreeMap<_, _> = nodes.iter().map(|node| (node.name, node.address)).collect();
        let network = Network::new(Arc::clone(&backend), by_name, driver);
        Self { backend, nodes, network, _dir: dir }
    }

    fn role(role: &str) -> Launch {
        let program = std::env::current_exe().expect("this program has a path");
        let mut launch = Launch::new([program.to_string_lossy()]).reading(&program);
        launch.env.insert(ROLE.into(), role.into());
        launch
    }

    async fn start(&self, index: usize, role: &str) {
        let rules = self.network.rules(self.nodes[index].name).await;
        self.backend.start(&self.nodes[index], &Self::role(role), &rules).await.expect("it starts");
    }

    async fn restart(&self, index: usize, role: &str) {
        let name = self.nodes[index].name;
        self.backend.signal(name, Signal::Kill).await.expect("it can be killed");
        self.backend.wait_exit(name, PATIENCE).await.expect("it ends");
        self.start(index, role).await;
    }
}

fn node(id: u32) -> NodeName {
    NodeName::new(id)
}

fn passes(reports: &[LinkReport], link: &str) -> Passes {
    reports
        .iter()
        .find(|report| report.link == link)
        .unwrap_or_else(|| panic!("no report of {link} among {reports:?}"))
        .passes
}

/// Cuts are one-way, of several faults at once, and gone when the last fault is healed.
pub(crate) async fn cuts_are_one_way_and_counted_by_fault(lan: &Lan) {
    for index in 0..3 {
        lan.start(index, "echo").await;
    }
    let all = lan.network.reset().await.expect("a reset");
    assert_eq!(all.len(), 12, "three nodes and the clients: {all:?}");
    assert!(all.iter().all(|report| report.holds() == Some(true)), "{all:?}");

    let one_way = BTreeSet::from([Cut::nodes(node(1), node(2))]);
    let cut = lan.network.cut(1, one_way.clone()).await.expect("a cut");
    assert_eq!(passes(&cut, "n1->n2"), Passes::No);
    let both = Cut::both(Endpoint::Node(node(1)), Endpoint::Node(node(2))).into();
    let cut = lan.network.cut(2, both).await.expect("a second cut");
    assert_eq!((passes(&cut, "n1->n2"), passes(&cut, "n2->n1")), (Passes::No, Passes::No));

    let healed = lan.network.heal(2).await.expect("a heal");
    assert_eq!(passes(&healed, "n2->n1"), Passes::Yes);
    assert_eq!(passes(&healed, "n1->n2"), Passes::No, "the first fault still cuts it");
    assert_eq!(lan.network.cut_links().await, one_way);
    let healed = lan.network.heal(1).await.expect("a heal");
    assert_eq!(passes(&healed, "n1->n2"), Passes::Yes);

    let clients = Cut::both(Endpoint::Clients, Endpoint::Node(node(3))).into();
    let cut = lan.network.cut(3, clients).await.expect("a cut of clients");
    assert_eq!(
        (passes(&cut, "clients->n3"), passes(&cut, "n3->clients")),
        (Passes::No, Passes::No)
    );
    let all = lan.network.reset().await.expect("a reset");
    assert!(all.iter().all(|report| report.holds() == Some(true)), "{all:?}");
}

/// A connection that stood before the cut goes silent, and goes on after the heal.
pub(crate) async fn standing_connections_are_cut_too(lan: &Lan) {
    lan.start(0, "echo").await;
    let peer = format!("dial {}:{BROKER_PORT}", lan.nodes[0].address);
    lan.start(1, &peer).await;
    let answers = || {
        let log = fs::read_to_string(lan.nodes[1].stdout_log()).unwrap_or_default();
        log.lines().filter(|line| line.starts_with("answered")).count()
    };
    grows(&answers, 0).await;
    let client = connect(&lan.nodes[0].client_endpoint()).await;
    assert!(exchange(&client, "before").await);

    let mut cuts: BTreeSet<Cut> =
        Cut::both(Endpoint::Node(node(1)), Endpoint::Node(node(2))).into();
    cuts.extend(Cut::both(Endpoint::Clients, Endpoint::Node(node(1))));
    let reports = lan.network.cut(1, cuts).await.expect("a cut");
    assert!(reports.iter().all(|report| report.passes == Passes::No), "{reports:?}");
    let then = answers();
    assert!(!exchange(&client, "during").await, "a client's connection was not cut");
    assert!(answers() <= then + 1, "a connection between nodes was not cut");

    lan.network.heal(1).await.expect("a heal");
    grows(&answers, then + 1).await;
}

/// A node killed and started again inside a partition comes back inside it.
pub(crate) async fn a_cut_holds_over_kill_and_restart(lan: &Lan) {
    for index in 0..2 {
        lan.start(index, "echo").await;
    }
    let both: BTreeSet<Cut> = Cut::both(Endpoint::Node(node(1)), Endpoint::Node(node(2))).into();
    lan.network.cut(1, both).await.expect("a cut");
    for index in [0, 1, 0] {
        lan.restart(index, "echo").await;
        let reports = lan.network.look_at(lan.nodes[index].name).await.expect("a look");
        assert_eq!(reports.len(), 2, "{reports:?}");
        assert!(reports.iter().all(|report| report.passes == Passes::No), "{reports:?}");
    }
    let healed = lan.network.heal(1).await.expect("a heal");
    assert!(healed.iter().all(|report| report.passes == Passes::Yes), "{healed:?}");
}

/// Healing touches our chains only.
pub(crate) async fn foreign_rules_stay(lan: &Lan) {
    lan.start(0, "echo").await;
    let foreign = "*filter\n:FOREIGN - [0:0]\n-A FOREIGN -s 192.0.2.7/32 -j DROP\n-A INPUT -j FOREIGN\nCOMMIT\n";
    lan.backend
        .apply_rules(node(1), &format!("{foreign}{}", lan.network.rules(node(1)).await))
        .await
        .expect("rules of another");
    let cuts = Cut::both(Endpoint::Node(node(1)), Endpoint::Node(node(2))).into();
    lan.network.cut(1, cuts).await.expect("a cut");
    lan.network.reset().await.expect("a reset");
    let rules = lan.backend.read_rules(node(1)).await.expect("rules").expect("a namespace");
    assert!(rules.contains("-A FOREIGN -s 192.0.2.7/32 -j DROP"), "{rules}");
    assert!(rules.contains("-A INPUT -j FOREIGN"), "{rules}");
    assert!(!rules.contains("-A HIGHWATER-IN -s"), "{rules}");
    assert_eq!(rules.matches("-A INPUT -j HIGHWATER-IN").count(), 1, "{rules}");
}

async fn grows(count: &impl Fn() -> usize, from: usize) {
    let begun = Instant::now();
    while count() <= from {
        assert!(begun.elapsed() < PATIENCE, "no answer beyond {from} within {PATIENCE:?}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

async fn connect(address: &str) -> TcpStream {
    let begun = Instant::now();
    loop {
        match TcpStream::connect(address) {
            Ok(stream) => return stream,
            Err(error) => assert!(begun.elapsed() < PATIENCE, "{address}: {error}"),
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Does a line come back within a second?
async fn exchange(stream: &TcpStream, line: &str) -> bool {
    let (mut stream, line) = (stream.try_clone().expect("a clone"), line.to_owned());
    tokio::task::spawn_blocking(move || {
        stream.set_read_timeout(Some(Duration::from_secs(1))).expect("a time-out can be set");
        writeln!(stream, "{line}").expect("the connection stands");
        let mut answer = String::new();
        BufReader::new(stream).read_line(&mut answer).is_ok_and(|_| answer.trim() == line)
    })
    .await
    .expect("the exchange does not panic")
}
