//! Bad input gets a clear message and the right exit code, and never a panic.

use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use libtest_mimic::Trial;

use crate::driver::{PROGRAM, said};
use crate::plain;

/// A command line, its exit code, and words that its message must hold.
type Case = (&'static str, &'static str, i32, &'static [&'static str]);

/// Command lines that cannot be carried out.
const COMMAND_LINES: &[Case] = &[
    ("unknown_command", "explode", 64, &["unrecognized subcommand"]),
    ("unknown_flag", "test --nemessis kill", 64, &["--nemesis"]),
    (
        "unknown_fault",
        "test --nemesis explode",
        64,
        &["no fault `explode`", "kill, stop, pause, partition"],
    ),
    ("unknown_target", "test --target everyone", 64, &["no target `everyone`", "minority"]),
    ("unknown_shape", "test --partition circle", 64, &["no partition `circle`", "majorities-ring"]),
    ("unknown_system", "test --system rabbit", 64, &["no system `rabbit`", "kafka"]),
    ("unknown_workload", "test --workload bank", 64, &["no workload `bank`", "queue"]),
    ("unknown_backend", "test --backend moon", 64, &["namespaces, docker"]),
    ("rate_zero", "test --rate 0", 64, &["rate_per_s", "above 0"]),
    ("rate_not_a_number", "test --rate fast", 64, &["--rate"]),
    (
        "more_replicas_than_brokers",
        "test --replication-factor 4",
        64,
        &["--replication-factor 4", "3 brokers"],
    ),
    ("no_brokers", "test --brokers 0", 64, &["--brokers 0", "from 1"]),
    ("time_not_a_time", "test --time-limit soon", 64, &["--time-limit"]),
    ("time_too_short_for_faults", "test --time-limit 1s", 64, &["no fault fits"]),
    ("setting_without_value", "test --system-config acks", 64, &["KEY=VALUE"]),
    ("idempotence_without_acks", "test --acks 1 --idempotence true", 64, &["acks=all"]),
    (
        "script_out_of_order",
        "test --nemesis-script 5s_kill_one",
        64,
        &["--nemesis-script", "step 1"],
    ),
    (
        "script_file_missing",
        "test --nemesis-script @/nowhere/at/all",
        64,
        &["/nowhere/at/all", "No such file"],
    ),
    (
        "image_without_docker",
        "test --system kafka --kafka-image apache/kafka:4.1.1",
        64,
        &["--backend docker"],
    ),
    ("bad_topic", "test --topics a/b", 64, &["`a/b` is not a topic name"]),
    (
        "home_without_kafka",
        "test --system kafka --kafka-home /usr",
        69,
        &["--kafka-home", "Maven", "--kafka-image"],
    ),
    (
        "no_such_file",
        "check /nowhere/history.jsonl",
        65,
        &["/nowhere/history.jsonl", "no such file"],
    ),
    ("no_such_scenario", "scenario run nothing", 64, &["no scenario `nothing`", "acks-1-loss"]),
    ("no_such_scenario_file", "scenario run nowhere.toml", 65, &["nowhere.toml", "No such file"]),
    ("bugs_in_a_release", "prove", 64, &["no seeded bugs", "--features seeded-bugs"]),
    ("no_such_bug", "prove --bugs r99-none", 64, &["no such bug", "r10-assume-success"]),
    ("power_off_on_docker", "test --backend docker --nemesis power-off", 64, &["namespaces"]),
    ("no_such_run", "show nothing-of-that-name", 65, &["nothing-of-that-name", "highwater runs"]),
];

/// One trial a case.
pub(crate) fn trials() -> Vec<Trial> {
    let mut trials: Vec<Trial> = COMMAND_LINES
        .iter()
        .map(|(name, line, code, words)| {
            plain(&format!("bad_input::{name}"), move || {
                let arguments: Vec<&str> = line.split_whitespace().collect();
                refused(&run(&arguments, &[]), *code, words);
            })
        })
        .collect();
    trials.push(plain("bad_input::no_java", no_java));
    trials.push(plain("bad_input::no_maven", no_maven));
    trials.push(plain("bad_input::no_docker_engine", no_docker_engine));
    trials.push(plain("bad_input::results_not_writable", results_not_writable));
    trials.extend(broken_histories());
    trials
}

fn run(arguments: &[&str], env: &[(&str, &str)]) -> Output {
    let folder = tempfile::tempdir().expect("a folder");
    Command::new(PROGRAM)
        .args(arguments)
        .envs(env.iter().copied())
        .env_remove("KAFKA_HOME")
        .current_dir(folder.path())
        .stdin(Stdio::null())
        .output()
        .expect("it can be run")
}

fn refused(output: &Output, code: i32, words: &[&str]) {
    let text = said(output);
    assert_eq!(output.status.code(), Some(code), "{text}");
    assert!(!text.contains("panicked"), "{text}");
    for word in words {
        assert!(text.contains(word), "the message lacks `{word}`: {text}");
    }
}

/// A PATH with links to these programs only.
fn path_with(folder: &Path, programs: &[&str]) -> String {
    let path = std::env::var_os("PATH").expect("a PATH");
    let dirs = std::env::split_paths(&path).chain(["/usr/sbin".into(), "/sbin".into()]);
    let dirs: Vec<_> = dirs.collect();
    for program in programs {
        if let Some(target) = dirs.iter().map(|dir| dir.join(program)).find(|file| file.is_file()) {
            std::os::unix::fs::symlink(target, folder.join(program)).expect("a link");
        }
    }
    folder.display().to_string()
}

fn no_java() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = path_with(folder.path(), &["ip", "iptables", "unshare", "true"]);
    let output = run(&["test", "--system", "kafka"], &[("PATH", &path), ("JAVA_HOME", "/nowhere")]);
    refused(&output, 69, &["java", "apt-get install openjdk-17-jre-headless"]);
}

fn no_maven() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = path_with(folder.path(), &["ip", "iptables", "unshare", "true", "java"]);
    let cache = folder.path().join("cache");
    let output = run(
        &["test", "--system", "kafka"],
        &[("PATH", &path), ("XDG_CACHE_HOME", &cache.to_string_lossy())],
    );
    refused(&output, 69, &["mvn", "--kafka-home", "KAFKA_HOME", "--kafka-image"]);
}

fn no_docker_engine() {
    let output =
        run(&["test", "--backend", "docker"], &[("DOCKER_HOST", "unix:///nowhere/docker.sock")]);
    refused(&output, 69, &["/nowhere/docker.sock", "apt-get install docker.io"]);
    assert!(!said(&output).contains("is stored in"), "a run was begun: {}", said(&output));
}

fn results_not_writable() {
    let output = run(&["test", "--backend", "docker", "--results", "/proc/nowhere"], &[]);
    refused(&output, 70, &["/proc/nowhere"]);
}

/// A name, a history, and words that the message must hold.
const HISTORIES: &[(&str, &str, &[&str])] = &[
    ("not_json", "{\"index\":0\nx\n", &["line 1"]),
    (
        "gap_in_index",
        "{\"index\":0,\"time\":1,\"process\":0,\"type\":\"invoke\",\"f\":\"poll\",\"value\":[[\"poll\"]]}\n{\"index\":2,\"time\":2,\"process\":0,\"type\":\"ok\",\"f\":\"poll\",\"value\":[[\"poll\",{}]]}\n",
        &["line 2", "index"],
    ),
    (
        "completion_without_invocation",
        "{\"index\":0,\"time\":1,\"process\":0,\"type\":\"ok\",\"f\":\"poll\",\"value\":[[\"poll\",{}]]}\n",
        &["line 1", "process 0"],
    ),
];

fn broken_histories() -> Vec<Trial> {
    let mut trials: Vec<Trial> = HISTORIES
        .iter()
        .map(|(name, history, words)| {
            plain(&format!("bad_input::history_{name}"), move || {
                let folder = tempfile::tempdir().expect("a folder");
                let path = folder.path().join("history.jsonl");
                fs::write(&path, history).expect("a file");
                let output = run(&["check", &path.to_string_lossy()], &[]);
                refused(&output, 65, words);
                refused(&output, 65, &["history.jsonl"]);
            })
        })
        .collect();
    trials.push(plain("bad_input::folder_without_history", || {
        let folder = tempfile::tempdir().expect("a folder");
        let output = run(&["check", &folder.path().to_string_lossy()], &[]);
        refused(&output, 65, &["no history.jsonl"]);
    }));
    trials
}
