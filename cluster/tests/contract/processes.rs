//! What every backend owes to the processes of nodes: that they start, stop, freeze and end as
//! asked, with the environment and the network they were given. Nodes are small shell programs.

use std::fs;
use std::future::Future;
use std::net::UdpSocket;
use std::pin::Pin;
use std::time::{Duration, Instant};

use cluster::{BackendError, Launch, NodeName, NodeSpec, Signal, Status};

use crate::links::Lan;

const PATIENCE: Duration = Duration::from_secs(30);
/// Nothing happens for this long: it does not happen.
const STILL: Duration = Duration::from_millis(400);
/// Ends with code 42 when asked; counts while it runs.
const COUNTER: &str = "trap 'exit 42' TERM; i=0; \
                       while :; do i=$((i+1)); echo count $i; sleep 0.02; done";

/// A test of a backend, on three nodes that were never started.
pub(crate) type Case = for<'a> fn(&'a Lan) -> Pin<Box<dyn Future<Output = ()> + 'a>>;

/// All of them, by name.
pub(crate) fn cases() -> Vec<(&'static str, Case)> {
    vec![
        ("an_exit_code_is_the_programs_own", |lan| Box::pin(exit_code(lan))),
        ("term_reaches_the_program_and_kill_ends_it", |lan| Box::pin(term_and_kill(lan))),
        ("a_paused_node_does_nothing_until_resumed", |lan| Box::pin(pause_and_resume(lan))),
        ("a_paused_node_can_be_killed", |lan| Box::pin(kill_while_paused(lan))),
        ("nothing_but_the_launch_is_inherited", |lan| Box::pin(environment(lan))),
        ("the_log_is_appended_to_over_restarts", |lan| Box::pin(log_over_restarts(lan))),
        ("exec_sees_the_nodes_files_and_network", |lan| Box::pin(exec(lan))),
        ("exec_has_a_deadline", |lan| Box::pin(exec_deadline(lan))),
        ("rules_hold_from_the_first_instruction", |lan| Box::pin(rules_come_first(lan))),
        ("sockets_open_inside_the_nodes_network", |lan| Box::pin(udp_both_ways(lan))),
        ("what_a_node_cannot_do_now_is_said", |lan| Box::pin(wrong_states(lan))),
        ("destroy_can_be_repeated", |lan| Box::pin(destroy_twice(lan))),
    ]
}

fn shell(script: &str) -> Launch {
    Launch::new(["sh", "-c", script])
}

async fn start(lan: &Lan, index: usize, launch: &Launch) {
    let node = &lan.nodes[index];
    let rules = lan.network.rules(node.name).await;
    lan.backend.start(node, launch, &rules).await.expect("it starts");
}

async fn code(lan: &Lan, index: usize) -> i32 {
    lan.backend.wait_exit(lan.nodes[index].name, PATIENCE).await.expect("it ends")
}

async fn status(lan: &Lan, index: usize) -> Status {
    lan.backend.status(lan.nodes[index].name).await.expect("a status")
}

fn log(node: &NodeSpec) -> String {
    fs::read_to_string(node.stdout_log()).unwrap_or_default()
}

fn counted(node: &NodeSpec) -> usize {
    log(node).lines().filter(|line| line.starts_with("count ")).count()
}

async fn until(what: &str, holds: impl Fn() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < PATIENCE, "not within {PATIENCE:?}: {what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

async fn counts_beyond(node: &NodeSpec, from: usize) {
    until("the node counts on", || counted(node) > from).await;
}

async fn exit_code(lan: &Lan) {
    assert_eq!(status(lan, 0).await, Status::NotStarted);
    for expected in [7, 0, 7] {
        start(lan, 0, &shell(&format!("exit {expected}"))).await;
        assert_eq!(code(lan, 0).await, expected);
        assert_eq!(status(lan, 0).await, Status::Exited { code: expected });
    }
}

async fn term_and_kill(lan: &Lan) {
    let node = &lan.nodes[0];
    start(lan, 0, &shell(COUNTER)).await;
    counts_beyond(node, 0).await;
    let Status::Running { pid } = status(lan, 0).await else { panic!("it runs") };
    let program = fs::read_to_string(format!("/proc/{pid}/cmdline")).expect("a command line");
    assert!(program.contains("count $i"), "pid {pid} is not the program's own: {program}");
    lan.backend.signal(node.name, Signal::Term).await.expect("a signal");
    assert_eq!(code(lan, 0).await, 42);

    let before = counted(node);
    start(lan, 0, &shell(COUNTER)).await;
    counts_beyond(node, before).await;
    lan.backend.signal(node.name, Signal::Kill).await.expect("a signal");
    assert_eq!(code(lan, 0).await, 137);
    assert_eq!(status(lan, 0).await, Status::Exited { code: 137 });
    assert!(!fs::exists(format!("/proc/{pid}")).expect("proc"), "{pid} is still there");
}

async fn pause_and_resume(lan: &Lan) {
    let node = &lan.nodes[1];
    start(lan, 1, &shell(COUNTER)).await;
    counts_beyond(node, 0).await;
    for _ in 0..2 {
        lan.backend.pause(node.name).await.expect("a pause");
        assert!(matches!(status(lan, 1).await, Status::Paused { .. }));
        let then = counted(node);
        tokio::time::sleep(STILL).await;
        assert_eq!(counted(node), then, "a paused node goes on");
        lan.backend.resume(node.name).await.expect("a resume");
        assert!(matches!(status(lan, 1).await, Status::Running { .. }));
        counts_beyond(node, then).await;
    }
    lan.backend.pause(node.name).await.expect("a pause");
    lan.backend.signal(node.name, Signal::Term).await.expect("a signal");
    tokio::time::sleep(STILL).await;
    assert!(matches!(status(lan, 1).await, Status::Paused { .. }), "a frozen node hears nothing");
    lan.backend.resume(node.name).await.expect("a resume");
    assert_eq!(code(lan, 1).await, 42, "what it was sent is heard once it is thawed");
}

async fn kill_while_paused(lan: &Lan) {
    let node = &lan.nodes[2];
    start(lan, 2, &shell(COUNTER)).await;
    counts_beyond(node, 0).await;
    lan.backend.pause(node.name).await.expect("a pause");
    let then = counted(node);
    lan.backend.signal(node.name, Signal::Kill).await.expect("a signal");
    assert_eq!(code(lan, 2).await, 137);
    assert_eq!(counted(node), then, "it did not thaw before it died");
    start(lan, 2, &shell(COUNTER)).await;
    counts_beyond(node, then).await;
}

async fn environment(lan: &Lan) {
    let mut launch = Launch::new(["env"]);
    launch.env.insert("GREETING".into(), "two  words = one".into());
    start(lan, 0, &launch).await;
    assert_eq!(code(lan, 0).await, 0);
    let log = log(&lan.nodes[0]);
    let mut names: Vec<&str> =
        log.lines().filter_map(|line| Some(line.split_once('=')?.0)).collect();
    names.sort_unstable();
    assert_eq!(names, ["GREETING", "PATH"], "{log}");
    assert!(log.contains("GREETING=two  words = one\n"), "{log}");
}

async fn log_over_restarts(lan: &Lan) {
    for round in 1..=2 {
        let script = format!("echo out {round}; echo err {round} >&2; pwd");
        start(lan, 0, &shell(&script)).await;
        assert_eq!(code(lan, 0).await, 0);
    }
    let node = &lan.nodes[0];
    let dir = node.dir.display();
    assert_eq!(log(node), format!("out 1\nerr 1\n{dir}\nout 2\nerr 2\n{dir}\n"));
}

async fn exec(lan: &Lan) {
    let node = &lan.nodes[0];
    let outside = tempfile::tempdir().expect("a folder");
    let given = outside.path().join("given");
    fs::write(&given, "from outside\n").expect("a file");
    let script = "echo written >\"$1/made\"; cat \"$2\"; echo to stderr >&2; cat /proc/net/fib_trie \
                  >\"$1/net\"; exit 3";
    let (dir, file) = (node.data_dir().display().to_string(), given.display().to_string());
    let launch = Launch::new(["sh", "-c", script, "sh", &dir, &file]).reading(&given);
    for round in ["before the first start", "while the node runs", "after its end"] {
        match round {
            "while the node runs" => start(lan, 0, &shell(COUNTER)).await,
            "after its end" => {
                lan.backend.signal(node.name, Signal::Kill).await.expect("a signal");
                code(lan, 0).await;
            }
            _ => {}
        }
        let output = lan.backend.exec(node, &launch, PATIENCE).await.expect(round);
        assert_eq!((output.code, output.stdout.as_str()), (3, "from outside\n"), "{round}");
        assert_eq!(output.stderr, "to stderr\n", "{round}");
        let made = node.data_dir().join("made");
        assert_eq!(fs::read_to_string(&made).expect("a file"), "written\n", "{round}");
        fs::remove_file(made).expect("it is ours");
        let net = fs::read_to_string(node.data_dir().join("net")).expect("a file");
        assert!(net.contains(&node.address.to_string()), "{round}: another network:\n{net}");
    }
}

async fn exec_deadline(lan: &Lan) {
    let node = &lan.nodes[0];
    let begun = Instant::now();
    let launch = Launch::new(["sleep", "600"]);
    let error =
        lan.backend.exec(node, &launch, Duration::from_secs(1)).await.expect_err("too long");
    assert!(matches!(error, BackendError::Deadline { .. }), "{error}");
    assert!(error.to_string().contains("`sleep` to end"), "{error}");
    assert!(begun.elapsed() < PATIENCE, "{:?}", begun.elapsed());
    start(lan, 0, &shell("exit 0")).await;
    assert_eq!(code(lan, 0).await, 0);
}

/// The program sends as the first thing it does, and for as long as it lives: none of it may
/// arrive, at the first start and at the next ones, until the rules are changed.
async fn rules_come_first(lan: &Lan) {
    let node = &lan.nodes[0];
    let driver = UdpSocket::bind((driver_address(lan), 0)).expect("a socket");
    driver.set_nonblocking(true).expect("a socket that does not block");
    let here = driver.local_addr().expect("an address");
    let script = format!(
        "i=0; while :; do i=$((i+1)); echo $i >/dev/udp/{}/{}; echo count $i; sleep 0.02; done",
        here.ip(),
        here.port()
    );
    let launch = Launch::new(["bash", "-c", &script]);
    let empty = "*filter\n:HIGHWATER-IN - [0:0]\n:HIGHWATER-OUT - [0:0]\n";
    let drop = format!("{empty}-A HIGHWATER-OUT -d {}/32 -p udp -j DROP\nCOMMIT\n", here.ip());
    let mut buffer = [0_u8; 64];
    for _ in 0..3 {
        let before = counted(node);
        lan.backend.start(node, &launch, &drop).await.expect("it starts");
        counts_beyond(node, before + 15).await;
        let heard = driver.recv(&mut buffer);
        assert!(heard.is_err(), "a packet passed: {:?}", heard.map(|n| buffer[..n].to_vec()));
        lan.backend.signal(node.name, Signal::Kill).await.expect("a signal");
        code(lan, 0).await;
    }
    lan.backend.start(node, &launch, &drop).await.expect("it starts");
    let rules = lan.backend.read_rules(node.name).await.expect("rules").expect("a namespace");
    assert!(rules.contains("-A HIGHWATER-OUT -d"), "{rules}");
    lan.backend.apply_rules(node.name, &format!("{empty}COMMIT\n")).await.expect("rules");
    until("packets pass once the rule is gone", || driver.recv(&mut [0_u8; 64]).is_ok()).await;
    let rules = lan.backend.read_rules(node.name).await.expect("rules").expect("a namespace");
    assert!(!rules.contains("-A HIGHWATER-OUT"), "{rules}");
}

/// Nodes see the driver at the first address of their network.
fn driver_address(lan: &Lan) -> std::net::Ipv4Addr {
    let [a, b, c, _] = lan.nodes[0].address.octets();
    std::net::Ipv4Addr::new(a, b, c, 1)
}

async fn udp_both_ways(lan: &Lan) {
    for index in 0..2 {
        start(lan, index, &shell(COUNTER)).await;
    }
    let mut sockets = Vec::new();
    for node in &lan.nodes[..2] {
        let socket =
            lan.backend.open_udp(node.name, 0).await.expect("no error").expect("a network");
        assert_eq!(socket.local_addr().expect("an address").ip(), node.address);
        socket.set_read_timeout(Some(PATIENCE)).expect("a time-out");
        sockets.push(socket);
    }
    let passes = |from: &UdpSocket, to: &UdpSocket| {
        from.send_to(b"x", to.local_addr().expect("an address")).expect("it is sent");
        to.recv(&mut [0_u8; 8]).is_ok()
    };
    assert!(passes(&sockets[0], &sockets[1]) && passes(&sockets[1], &sockets[0]));

    let drop = format!(
        "*filter\n:HIGHWATER-IN - [0:0]\n:HIGHWATER-OUT - [0:0]\n\
         -A HIGHWATER-IN -s {}/32 -j DROP\nCOMMIT\n",
        lan.nodes[0].address
    );
    lan.backend.apply_rules(lan.nodes[1].name, &drop).await.expect("rules");
    assert!(passes(&sockets[1], &sockets[0]), "the other way is open");
    sockets[1].set_read_timeout(Some(STILL)).expect("a time-out");
    assert!(!passes(&sockets[0], &sockets[1]), "the rule drops nothing");
}

async fn wrong_states(lan: &Lan) {
    let node = &lan.nodes[0];
    let is_state = |error: BackendError| matches!(error, BackendError::State { .. });
    let signal = |signal| lan.backend.signal(node.name, signal);
    assert!(is_state(signal(Signal::Term).await.expect_err("never started")));
    assert!(is_state(lan.backend.pause(node.name).await.expect_err("never started")));
    start(lan, 0, &shell(COUNTER)).await;
    let again =
        lan.backend.start(node, &shell("exit 0"), &lan.network.rules(node.name).await).await;
    assert!(is_state(again.expect_err("it runs")));
    let waited = lan.backend.wait_exit(node.name, STILL).await.expect_err("it runs");
    assert!(matches!(waited, BackendError::Deadline { .. }), "{waited}");
    signal(Signal::Kill).await.expect("a signal");
    code(lan, 0).await;
    assert!(is_state(signal(Signal::Kill).await.expect_err("it is gone")));
    assert!(is_state(lan.backend.resume(node.name).await.expect_err("it is gone")));
    let stranger = NodeName::new(99);
    assert!(is_state(lan.backend.status(stranger).await.expect_err("no such node")));
}

async fn destroy_twice(lan: &Lan) {
    for index in 0..3 {
        start(lan, index, &shell(COUNTER)).await;
    }
    let mut pids = Vec::new();
    for index in 0..3 {
        if let Status::Running { pid } = status(lan, index).await {
            pids.push(pid);
        }
    }
    lan.backend.pause(lan.nodes[1].name).await.expect("a pause");
    assert_eq!(pids.len(), 3);
    lan.backend.destroy().await.expect("it is removed");
    for pid in pids {
        until("the node's process is gone", || !fs::exists(format!("/proc/{pid}")).unwrap()).await;
    }
    lan.backend.destroy().await.expect("nothing is left to remove");
}
