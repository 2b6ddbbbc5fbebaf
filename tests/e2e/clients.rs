//! Clients of librdkafka's that nobody here wrote, at their work on the in-repo broker.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::by_hand::ByHand;
use crate::driver::eventually;

/// kcat: what there is, a produce under acks=all, a consume from the beginning, and in a group.
pub(crate) fn kcat() {
    // kcat has no way to make a topic but to ask for its metadata.
    let cluster = ByHand::up(&["--system-config", "auto.create.topics.enable=true"]);
    let broker = cluster.bootstrap.clone();
    let kcat = |arguments: &[&str], input: &str| {
        cluster.run(&[&["kcat", "-b", &broker], arguments].concat(), input)
    };
    let text = kcat(&["-L", "-J"], "");
    let metadata: Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!(metadata["brokers"].as_array().map(Vec::len), Some(3), "{text}");

    // Debian's kcat is built without zstd.
    for codec in ["none", "gzip", "snappy", "lz4"] {
        let topic = format!("of-{codec}");
        let lines: Vec<String> =
            (0..500).map(|number| format!("k{number}:{codec} {number}")).collect();
        let input = lines.join("\n");
        let all = ["-P", "-t", &topic, "-K", ":", "-z", codec, "-X", "acks=all"];
        kcat(&[all.as_slice(), &["-X", "enable.idempotence=true"]].concat(), &input);
        let read = kcat(&["-C", "-t", &topic, "-o", "beginning", "-e", "-q", "-K", ":"], "");
        let read: Vec<&str> = read.lines().collect();
        assert_eq!(read, lines, "{codec}: what comes back is not what was sent");
    }
    let watermarks = kcat(&["-Q", "-t", "of-none:0:-1"], "");
    assert!(watermarks.contains("offset 500"), "{watermarks}");

    // A group reads everything once, commits, and has nothing more to read.
    let group = ["-G", "readers", "-e", "-q"];
    let reset = ["-X", "auto.offset.reset=earliest", "of-none", "of-lz4"];
    let all = kcat(&[group.as_slice(), reset.as_slice()].concat(), "");
    assert_eq!(all.lines().count(), 1000);
    let again = kcat(&[group.as_slice(), reset.as_slice()].concat(), "");
    assert_eq!(again.lines().count(), 0, "{again}");
}

/// Of a compacted topic the last record of each key is left, at the offset it had, on every node.
pub(crate) fn compaction() {
    const KEYS: usize = 20;
    const SENT: usize = 3000;
    let cluster = ByHand::up(&[
        "--system-config",
        "auto.create.topics.enable=true",
        "--system-config",
        "log.cleanup.policy=compact",
        "--system-config",
        "log.segment.bytes=65536",
        "--system-config",
        "log.cleaner.min.cleanable.ratio=0.01",
        "--system-config",
        "log.cleaner.backoff.ms=200",
    ]);
    let key = |number: usize| (number * number + number / 7) % KEYS;
    let lines: Vec<String> =
        (0..SENT).map(|number| format!("k{}:{number:0200}", key(number))).collect();
    let produce = ["kcat", "-b", &cluster.bootstrap, "-P", "-t", "kept", "-K", ":"];
    cluster.run(
        &[produce.as_slice(), &["-X", "acks=all", "-X", "batch.size=8192"]].concat(),
        &lines.join("\n"),
    );
    for node in ["n1", "n2", "n3"] {
        let cleaned = cluster.files.join(node).join("data/cleaner-offset-checkpoint");
        eventually("the log to be compacted", || {
            let text = std::fs::read_to_string(&cleaned).unwrap_or_default();
            let to = text.lines().find_map(|line| line.strip_prefix("kept 0 "));
            to.and_then(|to| to.parse::<usize>().ok()).is_some_and(|to| to > SENT / 2)
        });
    }
    let read =
        ["kcat", "-b", &cluster.bootstrap, "-C", "-t", "kept", "-o", "beginning", "-e", "-q"];
    let read = cluster.run(&[read.as_slice(), &["-f", "%o %k %s\n"]].concat(), "");
    let mut last = BTreeMap::new();
    for line in read.lines() {
        let [offset, key, value] = line.split(' ').collect::<Vec<_>>()[..] else {
            panic!("{line} is not what was asked for");
        };
        let number: usize = value.parse().expect("a number");
        assert_eq!(offset.parse(), Ok(number), "a record has moved");
        last.insert(key.to_owned(), number);
    }
    let expected: BTreeMap<String, usize> =
        (0..SENT).map(|number| (format!("k{}", key(number)), number)).collect();
    assert_eq!(last, expected);
    let count = read.lines().count();
    assert!(count < SENT / 2 + KEYS, "{count} of {SENT} records are left");
}
