//! Apache Kafka's own command line tools, each at its work on the in-repo broker.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use crate::by_hand::ByHand;
use crate::driver::{eventually, said};

const POM: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/e2e/kafka_tools_pom.xml");
/// Records that the console producer sends.
const SENT: usize = 300;
/// Records that the verifiable producer sends.
const VERIFIED: usize = 1000;

const REASSIGN: &str = "reassign.ReassignPartitionsCommand";

/// The tools on a cluster.
struct Tools {
    cluster: ByHand,
    classpath: String,
}

/// The folder of their jars: fetched once into the folder for what tests build.
fn jars() -> PathBuf {
    let jars = Path::new(env!("CARGO_TARGET_TMPDIR")).join("kafka-tools");
    if jars.exists() {
        return jars;
    }
    let fetched = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder");
    let output = Command::new("mvn")
        .args(["-q", "-B", "-f", POM, "dependency:copy-dependencies", "-DincludeScope=runtime"])
        .arg(format!("-DoutputDirectory={}", fetched.path().display()))
        .stdin(Stdio::null())
        .output()
        .expect("mvn runs");
    assert!(output.status.success(), "the tools cannot be fetched: {}", said(&output));
    fs::rename(fetched.keep(), &jars).expect("they can be kept");
    jars
}

impl Tools {
    fn command<'a>(&'a self, class: &'a str, arguments: &[&'a str]) -> Vec<&'a str> {
        // Tools live for a second: the second compiler would only cost.
        let java = ["java", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-cp", &self.classpath];
        [&java, [class, "--bootstrap-server", &self.cluster.bootstrap].as_slice(), arguments]
            .concat()
    }

    /// What a tool says when it is done with its work.
    fn run(&self, class: &str, arguments: &[&str]) -> String {
        self.cluster.run(&self.command(&format!("org.apache.kafka.tools.{class}"), arguments), "")
    }
}

/// The line of `text` that has all of `words` among its own.
fn line<'a>(text: &'a str, words: &[&str]) -> &'a str {
    let has =
        |line: &&str| words.iter().all(|word| line.split_whitespace().any(|known| known == *word));
    text.lines().find(has).unwrap_or_else(|| panic!("no line with {words:?} in:\n{text}"))
}

/// The number in a column of a table with a heading.
fn column(text: &str, heading: &str, row: &str) -> i64 {
    let at = line(text, &[heading])
        .split_whitespace()
        .position(|word| word == heading)
        .expect("it is there");
    let cell = row.split_whitespace().nth(at).unwrap_or_else(|| panic!("{row} is too short"));
    cell.parse().unwrap_or_else(|_| panic!("{cell} is no number, in {row}"))
}

/// All of them on one cluster.
pub(crate) fn all() {
    let classpath = format!("{}/*", jars().display());
    let cluster = ByHand::up(&["--system-config", "auto.create.topics.enable=false"]);
    let tools = Tools { cluster, classpath };
    topics_are_made_and_described(&tools);
    console_producer_and_consumer(&tools);
    groups_are_described_reset_and_deleted(&tools);
    verifiable_producer_and_consumer(&tools);
    performance_and_offsets(&tools);
    segments_are_dumped(&tools);
    the_quorum_is_described(&tools);
    settings_are_changed(&tools);
    replicas_are_moved_and_leaders_elected(&tools);
    records_and_topics_are_deleted(&tools);
}

fn topics_are_made_and_described(tools: &Tools) {
    let shape = ["--partitions", "3", "--replication-factor", "3"];
    let made = ["--create", "--topic", "words", "--config", "min.insync.replicas=2"];
    let made = tools.run("TopicCommand", &[made.as_slice(), &shape].concat());
    assert!(made.contains("Created topic words."), "{made}");
    assert_eq!(tools.run("TopicCommand", &["--list"]).trim(), "words");
    let described = tools.run("TopicCommand", &["--describe", "--topic", "words"]);
    for expected in ["PartitionCount: 3", "ReplicationFactor: 3", "min.insync.replicas=2"] {
        assert!(described.contains(expected), "no {expected} in:\n{described}");
    }
    for partition in ["0", "1", "2"] {
        let line = line(&described, &["Partition:", partition, "Isr:"]);
        let isr = line.split_once("Isr: ").expect("an ISR").1;
        let isr = isr.split_whitespace().next().expect("members");
        assert_eq!(isr.split(',').count(), 3, "{line}");
    }
}

fn console_producer_and_consumer(tools: &Tools) {
    let lines: Vec<String> = (0..SENT).map(|number| format!("word {number}")).collect();
    let produce = tools.command("org.apache.kafka.tools.ConsoleProducer", &["--topic", "words"]);
    tools.cluster.run(&produce, &lines.join("\n"));
    let count = SENT.to_string();
    let group = ["--topic", "words", "--group", "readers", "--from-beginning"];
    let limits = ["--max-messages", &count, "--timeout-ms", "60000"];
    let read =
        tools.run("consumer.ConsoleConsumer", &[group.as_slice(), limits.as_slice()].concat());
    let mut read: Vec<&str> = read.lines().collect();
    read.sort_unstable();
    let mut sent: Vec<&str> = lines.iter().map(String::as_str).collect();
    sent.sort_unstable();
    assert_eq!(read, sent);
}

fn groups_are_described_reset_and_deleted(tools: &Tools) {
    const COMMAND: &str = "consumer.group.ConsumerGroupCommand";
    assert_eq!(tools.run(COMMAND, &["--list"]).trim(), "readers");
    let described = tools.run(COMMAND, &["--describe", "--group", "readers"]);
    let rows = || described.lines().filter(|line| line.starts_with("readers"));
    let sum = |heading| rows().map(|row| column(&described, heading, row)).sum::<i64>();
    assert_eq!((sum("CURRENT-OFFSET"), sum("LAG")), (300, 0), "{described}");
    let reset = ["--reset-offsets", "--group", "readers", "--topic", "words", "--to-earliest"];
    tools.run(COMMAND, &[reset.as_slice(), &["--execute"]].concat());
    let described = tools.run(COMMAND, &["--describe", "--group", "readers"]);
    let rows = described.lines().filter(|line| line.starts_with("readers"));
    assert_eq!(rows.map(|row| column(&described, "LAG", row)).sum::<i64>(), 300, "{described}");
    let deleted = tools.run(COMMAND, &["--delete", "--group", "readers"]);
    assert!(deleted.contains("was successful"), "{deleted}");
    assert_eq!(tools.run(COMMAND, &["--list"]).trim(), "");
}

/// Lines of JSON whose `name` is this.
fn events(text: &str, name: &str) -> Vec<Value> {
    text.lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok())
        .filter(|event| event["name"] == name)
        .collect()
}

fn verifiable_producer_and_consumer(tools: &Tools) {
    let count = VERIFIED.to_string();
    let produce = ["--topic", "words", "--max-messages", &count, "--acks", "-1"];
    let produced = tools.run("VerifiableProducer", &produce);
    assert_eq!(events(&produced, "producer_send_success").len(), VERIFIED);
    assert_eq!(events(&produced, "producer_send_error"), Vec::<Value>::new());
    let all = (SENT + VERIFIED).to_string();
    let consume = ["--topic", "words", "--group-id", "verifier", "--max-messages", &all];
    let reset = ["--reset-policy", "earliest"];
    let consumed = tools.run("VerifiableConsumer", &[consume.as_slice(), &reset].concat());
    let counts = events(&consumed, "records_consumed");
    let read: u64 = counts.iter().filter_map(|event| event["count"].as_u64()).sum();
    assert_eq!(read, (SENT + VERIFIED) as u64, "{consumed}");
    let commits = events(&consumed, "offsets_committed");
    assert!(!commits.is_empty() && commits.iter().all(|commit| commit["success"] == true));
}

fn performance_and_offsets(tools: &Tools) {
    let shape = ["--partitions", "3", "--replication-factor", "3"];
    tools.run("TopicCommand", &[["--create", "--topic", "perf"].as_slice(), &shape].concat());
    let load = ["--topic", "perf", "--num-records", "20000", "--record-size", "200"];
    let how = ["--throughput", "-1", "--command-property", "acks=all", "compression.type=lz4"];
    let sent = tools.run("ProducerPerformance", &[load.as_slice(), &how].concat());
    assert!(sent.contains("20000 records sent"), "{sent}");
    let offsets = tools.run("GetOffsetShell", &["--topic", "perf"]);
    let ends = offsets.lines().filter_map(|line| line.rsplit(':').next()?.parse::<i64>().ok());
    assert_eq!(ends.sum::<i64>(), 20_000, "{offsets}");
}

/// What lies on a node's disk is Kafka's: each record is found there again.
fn segments_are_dumped(tools: &Tools) {
    let mut found = 0;
    for partition in 0..3 {
        let log = format!("n1/data/words-{partition}/{:020}.log", 0);
        let segment = tools.cluster.files.join(log).to_string_lossy().into_owned();
        let java = ["java", "-XX:TieredStopAtLevel=1", "-cp", &tools.classpath];
        let dump = ["org.apache.kafka.tools.DumpLogSegments", "--deep-iteration", "--files"];
        let command = [java.as_slice(), &dump, &[segment.as_str()]].concat();
        let dumped = tools.cluster.run(&command, "");
        assert!(!dumped.contains("isvalid: false"), "{dumped}");
        found += dumped.lines().filter(|line| line.starts_with("| offset:")).count();
    }
    assert_eq!(found, SENT + VERIFIED);
}

fn the_quorum_is_described(tools: &Tools) {
    let status = tools.run("MetadataQuorumCommand", &["describe", "--status"]);
    let leader = line(&status, &["LeaderId:"]).split_whitespace().last().expect("a leader");
    assert!(["1", "2", "3"].contains(&leader), "{status}");
    let replication = tools.run("MetadataQuorumCommand", &["describe", "--replication"]);
    assert!(line(&replication, &["Leader"]).trim().starts_with(leader), "{replication}");
    assert_eq!(replication.lines().filter(|line| line.contains("Follower")).count(), 2);
}

fn settings_are_changed(tools: &Tools) {
    let topic = ["--entity-type", "topics", "--entity-name", "words"];
    let change = ["--alter", "--add-config", "retention.ms=777000"];
    tools.run("ConfigCommand", &[topic.as_slice(), &change].concat());
    let described = tools.run("ConfigCommand", &[topic.as_slice(), &["--describe"]].concat());
    assert!(described.contains("retention.ms=777000"), "{described}");
}

/// Where the replicas of partition 0 are, the preferred one first, and who leads it.
fn replicas(tools: &Tools) -> (Vec<i32>, i32) {
    let described = tools.run("TopicCommand", &["--describe", "--topic", "words"]);
    let line = line(&described, &["Partition:", "0", "Replicas:"]);
    let after = |name: &str| {
        let rest = line.split_once(name).unwrap_or_else(|| panic!("no {name} in {line}")).1;
        rest.split_whitespace().next().unwrap_or_default().to_owned()
    };
    let ids = after("Replicas: ").split(',').map(|id| id.parse().expect("an id")).collect();
    (ids, after("Leader: ").parse().expect("an id"))
}

fn replicas_are_moved_and_leaders_elected(tools: &Tools) {
    let (before, leader) = replicas(tools);
    let mut wanted = before.clone();
    wanted.rotate_left(1);
    let plan = tools.cluster.dir.join("plan.json");
    let moved = json!({
        "version": 1,
        "partitions": [{"topic": "words", "partition": 0, "replicas": wanted}],
    });
    fs::write(&plan, moved.to_string()).expect("a file");
    let plan = plan.to_string_lossy().into_owned();
    let file = ["--reassignment-json-file", &plan];
    tools.run(REASSIGN, &[file.as_slice(), &["--execute"]].concat());
    eventually("the reassignment to be done", || {
        tools.run(REASSIGN, &[file.as_slice(), &["--verify"]].concat()).contains("is completed")
    });
    assert_eq!(replicas(tools), (wanted.clone(), leader), "it led before, and is a replica still");
    let elected = ["--election-type", "preferred", "--topic", "words", "--partition", "0"];
    tools.run("LeaderElectionCommand", &elected);
    eventually("the preferred replica to lead", || replicas(tools) == (wanted.clone(), wanted[0]));
}

fn records_and_topics_are_deleted(tools: &Tools) {
    // A producer without keys stays with one partition for a while: any one may be empty, but not
    // that with the most records.
    let ends = tools.run("GetOffsetShell", &["--topic", "words"]);
    let place = |line: &str| -> Option<(i64, i32)> {
        let (partition, end) = line.strip_prefix("words:")?.split_once(':')?;
        Some((end.parse().ok()?, partition.parse().ok()?))
    };
    let (_, fullest) = ends.lines().filter_map(place).max().expect("an end");
    let begins = format!("words:{fullest}:5");
    let earliest = || {
        let offsets = tools.run("GetOffsetShell", &["--topic", "words", "--time", "earliest"]);
        line(&offsets, &[&begins]).to_owned()
    };
    let plan = tools.cluster.dir.join("delete.json");
    let cut = json!({
        "version": 1,
        "partitions": [{"topic": "words", "partition": fullest, "offset": 5}],
    });
    fs::write(&plan, cut.to_string()).expect("a file");
    let deleted =
        tools.run("DeleteRecordsCommand", &["--offset-json-file", &plan.to_string_lossy()]);
    assert!(deleted.contains("low_watermark: 5"), "{deleted}");
    assert_eq!(earliest(), begins);
    let dirs = tools.run("LogDirsCommand", &["--describe", "--topic-list", "words"]);
    let dirs = dirs.lines().find(|line| line.starts_with('{')).expect("a line of JSON");
    let dirs: Value = serde_json::from_str(dirs).expect("JSON");
    assert_eq!(dirs["brokers"].as_array().map(Vec::len), Some(3), "{dirs}");
    tools.run("TopicCommand", &["--delete", "--topic", "words"]);
    eventually("the topic to be gone", || {
        !tools.run("TopicCommand", &["--list"]).lines().any(|topic| topic == "words")
    });
}
