//! Clients of librdkafka's that nobody here wrote, at their work on the in-repo broker.

use serde_json::Value;

use crate::by_hand::ByHand;

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
