//! The backend contract on the `docker` backend, and what is this backend's alone.

#![allow(
    clippy::expect_used,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a test may fail loudly and plays nodes that talk"
)]

#[path = "contract/links.rs"]
mod links;
#[path = "contract/processes.rs"]
mod processes;
#[path = "contract/requirements.rs"]
mod requirements;

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use cluster::docker::{
    Access, BASE_TAG, BaseSource, Docker, Engine, ImageChoice, Lifetime, Sweep, ensure_base,
    ensure_image, preflight, remove_leftovers,
};
use cluster::{Backend, BackendError, Launch, Signal};
use libtest_mimic::{Arguments, Failed, Trial};
use links::Lan;
use processes::Case;
use tokio::runtime::Runtime;

/// With this variable set, the test program is a driver that is going to be killed.
const DOOMED: &str = "HIGHWATER_TEST_DOOMED_DRIVER";
const PATIENCE: Duration = Duration::from_secs(30);
/// Where the engine listens.
static SOCKET: OnceLock<PathBuf> = OnceLock::new();

fn main() {
    links::play_role();
    if std::env::var_os(DOOMED).is_some() {
        runtime().block_on(doomed_driver());
    }
    let arguments = Arguments { test_threads: Some(2), ..Arguments::from_args() };
    let trials = if arguments.list { Ok(trials()) } else { prepare().map(|()| trials()) };
    let trials = trials
        .unwrap_or_else(|(requirement, reason)| vec![requirements::not_run(requirement, &reason)]);
    libtest_mimic::run(&arguments, trials).exit();
}

/// What is missing, if anything; with the base image made.
fn prepare() -> Result<(), (&'static str, String)> {
    runtime().block_on(async {
        let missing = |error: BackendError| {
            let is_root = Access::of_this_user() == Access::Direct;
            (if is_root { "docker" } else { "root" }, error.to_string())
        };
        let info = preflight().await.map_err(missing)?;
        SOCKET.get_or_init(|| info.socket);
        let engine = Engine::connect().await.map_err(|error| missing(error.into()))?;
        ensure_base(&engine, &BaseSource::from_environment(), &|_| {}).await.map_err(missing)?;
        remove_leftovers(&engine, Sweep::OwnerGone).await.map_err(missing)?;
        Ok(())
    })
}

fn trials() -> Vec<Trial> {
    let links: [(&str, Case); 4] = [
        ("cuts_are_one_way_and_counted_by_fault", |lan| {
            Box::pin(links::cuts_are_one_way_and_counted_by_fault(lan))
        }),
        ("standing_connections_are_cut_too", |lan| {
            Box::pin(links::standing_connections_are_cut_too(lan))
        }),
        ("a_cut_holds_over_kill_and_restart", |lan| {
            Box::pin(links::a_cut_holds_over_kill_and_restart(lan))
        }),
        ("foreign_rules_stay", |lan| Box::pin(links::foreign_rules_stay(lan))),
    ];
    let own: [(&str, Case); 3] = [
        ("what_a_container_wrote_outlives_a_kill", |lan| Box::pin(writable_layer(lan))),
        ("a_shell_that_cannot_start_is_told", |lan| Box::pin(bad_mount(lan))),
        ("what_the_engine_tells_is_collected", |lan| Box::pin(collect(lan))),
    ];
    let shared = processes::cases().into_iter().chain(links).chain(own);
    let mut trials: Vec<Trial> =
        shared.map(|(name, case)| Trial::test(name, move || run(case, Access::Direct))).collect();
    trials.push(Trial::test("rules_go_through_a_helper_container", || {
        run(|lan| Box::pin(helper(lan)), Access::Helper)
    }));
    trials.push(Trial::test("leftovers_of_a_killed_driver_are_removed", || {
        runtime().block_on(leftovers());
        Ok(())
    }));
    trials.push(Trial::test("an_image_that_is_not_to_be_had_is_named", || {
        runtime().block_on(missing_images());
        Ok(())
    }));
    trials
}

fn runtime() -> Runtime {
    tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("a runtime")
}

fn fresh_run() -> String {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    format!("test-{}-{}", std::process::id(), NUMBER.fetch_add(1, Ordering::Relaxed))
}

/// Runs a case on a cluster of its own, and looks that nothing of it is left.
fn run(case: Case, access: Access) -> Result<(), Failed> {
    let runtime = runtime();
    let run = fresh_run();
    let engine = runtime.block_on(Engine::connect()).map_err(|error| error.to_string())?;
    let docker = Docker::with_access(engine, &run, BASE_TAG, Lifetime::Driver, access)
        .map_err(|error| error.to_string())?;
    let backend: Arc<dyn Backend> = Arc::new(docker);
    let lan = runtime.block_on(Lan::create(Arc::clone(&backend)));
    let result = catch_unwind(AssertUnwindSafe(|| runtime.block_on(case(&lan))));
    let destroyed = runtime.block_on(backend.destroy());
    if let Err(panic) = result {
        resume_unwind(panic);
    }
    destroyed.map_err(|error| error.to_string())?;
    let left = labelled(&format!("highwater.run={run}"));
    if left.is_empty() { Ok(()) } else { Err(format!("left behind: {left:?}").into()) }
}

/// Ids of all containers and networks with a label, as the engine itself tells.
fn labelled(label: &str) -> Vec<String> {
    let filter = format!("filters=%7B%22label%22%3A%5B%22{}%22%5D%7D", label.replace('=', "%3D"));
    ["/containers/json?all=1&", "/networks?"]
        .iter()
        .flat_map(|path| {
            let answer = ask_engine(&format!("{path}{filter}"));
            let found: Vec<serde_json::Value> = serde_json::from_str(&answer).expect("a list");
            found.into_iter().map(|it| it["Id"].as_str().expect("an id").to_owned())
        })
        .collect()
}

fn ask_engine(path: &str) -> String {
    let socket = SOCKET.get().expect("the engine was reached before");
    let mut stream = UnixStream::connect(socket).expect("a socket");
    write!(stream, "GET {path} HTTP/1.0\r\nHost: docker\r\n\r\n").expect("it is sent");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    answer.split_once("\r\n\r\n").expect("a body").1.to_owned()
}

async fn start(lan: &Lan, script: &str) {
    let rules = lan.network.rules(lan.nodes[0].name).await;
    let launch = Launch::new(["sh", "-c", script]);
    lan.backend.start(&lan.nodes[0], &launch, &rules).await.expect("it starts");
}

async fn writable_layer(lan: &Lan) {
    let node = &lan.nodes[0];
    let script = "cat /tmp/kept; echo kept >>/tmp/kept; exec sleep 600";
    let log = || std::fs::read_to_string(node.stdout_log()).unwrap_or_default();
    for round in 0..3 {
        start(lan, script).await;
        let written = Launch::new(["sh", "-c", "exit 0"]);
        lan.backend.exec(node, &written, PATIENCE).await.expect("a command beside the node");
        let begun = std::time::Instant::now();
        while log().matches("kept\n").count() < round * (round + 1) / 2 {
            assert!(begun.elapsed() < PATIENCE, "round {round}: {}", log());
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        lan.backend.signal(node.name, Signal::Kill).await.expect("a signal");
        lan.backend.wait_exit(node.name, PATIENCE).await.expect("it ends");
    }
    start(lan, "cat /tmp/kept || echo a new container").await;
    lan.backend.wait_exit(node.name, PATIENCE).await.expect("it ends");
    assert!(log().ends_with("a new container\n"), "{}", log());
}

async fn bad_mount(lan: &Lan) {
    let launch = Launch::new(["true"]).reading("/no/such/path".as_ref());
    let rules = lan.network.rules(lan.nodes[0].name).await;
    let error = lan.backend.start(&lan.nodes[0], &launch, &rules).await.expect_err("no such path");
    assert!(error.to_string().contains("/no/such/path"), "{error}");
    start(lan, "exit 5").await;
    assert_eq!(lan.backend.wait_exit(lan.nodes[0].name, PATIENCE).await.expect("it ends"), 5);
}

async fn collect(lan: &Lan) {
    let node = &lan.nodes[0];
    assert!(lan.backend.collect(node).await.expect("nothing yet").is_empty());
    start(lan, "exit 9").await;
    lan.backend.wait_exit(node.name, PATIENCE).await.expect("it ends");
    let files = lan.backend.collect(node).await.expect("files");
    let told = std::fs::read_to_string(&files[0]).expect("a file");
    let told: serde_json::Value = serde_json::from_str(&told).expect("JSON");
    assert_eq!(told["State"]["ExitCode"], 9);
    assert_eq!(told["HostConfig"]["RestartPolicy"]["Name"], "no");
}

async fn helper(lan: &Lan) {
    let node = &lan.nodes[0];
    let drop = "*filter\n:HIGHWATER-IN - [0:0]\n:HIGHWATER-OUT - [0:0]\n\
                -A HIGHWATER-IN -s 192.0.2.7/32 -j DROP\nCOMMIT\n";
    let launch = Launch::new(["sleep", "600"]);
    assert_eq!(lan.backend.read_rules(node.name).await.expect("no error"), None);
    lan.backend.start(node, &launch, drop).await.expect("it starts");
    let rules = lan.backend.read_rules(node.name).await.expect("rules").expect("a namespace");
    assert!(rules.contains("-A HIGHWATER-IN -s 192.0.2.7/32 -j DROP"), "{rules}");
    lan.backend.pause(node.name).await.expect("a pause");
    let empty = "*filter\n:HIGHWATER-IN - [0:0]\n:HIGHWATER-OUT - [0:0]\nCOMMIT\n";
    lan.backend.apply_rules(node.name, empty).await.expect("rules of a paused node");
    let rules = lan.backend.read_rules(node.name).await.expect("rules").expect("a namespace");
    assert!(!rules.contains("192.0.2.7"), "{rules}");
    assert_eq!(rules.matches("-A INPUT -j HIGHWATER-IN").count(), 1, "{rules}");
    let error = lan.backend.open_udp(node.name, 0).await.expect_err("no way in");
    assert!(error.to_string().contains("needs root"), "{error}");
    lan.backend.signal(node.name, Signal::Kill).await.expect("a signal");
    lan.backend.wait_exit(node.name, PATIENCE).await.expect("it ends");
    lan.backend.apply_rules(node.name, empty).await.expect("nothing to do");
    assert_eq!(lan.backend.read_rules(node.name).await.expect("no error"), None);
}

async fn doomed_driver() {
    let engine = Engine::connect().await.expect("an engine");
    let run = std::env::var(DOOMED).expect("a run");
    let backend: Arc<dyn Backend> =
        Arc::new(Docker::new(engine, &run, BASE_TAG, Lifetime::Driver).expect("a backend"));
    let lan = Lan::create(backend).await;
    start(&lan, "exec sleep 600").await;
    lan.backend.pause(lan.nodes[0].name).await.expect("a pause");
    println!("ready");
    std::future::pending::<()>().await;
}

/// A child that does not outlive the test, however that ends.
struct KilledOnDrop(Child);

impl Drop for KilledOnDrop {
    fn drop(&mut self) {
        let _ = self.0.kill().and_then(|()| self.0.wait());
    }
}

async fn leftovers() {
    let engine = Engine::connect().await.expect("an engine");
    let (run, mine) = (fresh_run(), fresh_run());
    let mut command = Command::new(std::env::current_exe().expect("a path"));
    command.env(DOOMED, &run).stdout(Stdio::piped());
    let mut driver = KilledOnDrop(command.spawn().expect("a driver"));
    let mut lines = BufReader::new(driver.0.stdout.take().expect("its output")).lines();
    assert_eq!(lines.next().expect("a line").expect("text"), "ready");
    let kept = Docker::new(engine.clone(), &mine, BASE_TAG, Lifetime::Driver).expect("a backend");
    kept.create_network(&[]).await.expect("a network");

    let its = format!("highwater.run={run}");
    remove_leftovers(&engine, Sweep::OwnerGone).await.expect("a sweep");
    assert_eq!(labelled(&its).len(), 2, "a driver that lives keeps what it has");
    drop(driver);
    let removed = remove_leftovers(&engine, Sweep::OwnerGone).await.expect("a sweep");
    assert!(removed.containers.contains(&format!("highwater-{run}-n1")), "{removed:?}");
    assert!(removed.networks.contains(&format!("highwater-{run}")), "{removed:?}");
    assert_eq!(labelled(&its), Vec::<String>::new());
    assert_eq!(labelled(&format!("highwater.run={mine}")).len(), 1, "mine is still there");
    kept.destroy().await.expect("it is removed");
}

async fn missing_images() {
    let engine = Engine::connect().await.expect("an engine");
    let ours = ImageChoice::Kafka("0.0.1".into());
    let error = ensure_image(&engine, &ours, &|_| {}).await.expect_err("never built");
    assert!(error.to_string().contains("highwater image build --system kafka:0.0.1"), "{error}");
    // A registry at a port of this machine at which nobody listens.
    let theirs = ImageChoice::Named("127.0.0.1:1/no/such:image".into());
    let error = ensure_image(&engine, &theirs, &|_| {}).await.expect_err("nobody listens");
    assert!(error.to_string().contains("127.0.0.1:1/no/such:image"), "{error}");
    assert!(error.to_string().contains("docker load"), "{error}");
}
