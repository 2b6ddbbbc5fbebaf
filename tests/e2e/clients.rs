//! Clients that nobody here wrote, each at its work on the in-repo broker.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use serde_json::Value;

use crate::driver::{eventually, highwater, processes_naming, said};

/// A cluster by hand, taken down at the end.
struct ByHand {
    _folder: tempfile::TempDir,
    dir: PathBuf,
    bootstrap: String,
}

impl ByHand {
    fn up() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let dir = folder.path().canonicalize().expect("a path");
        let here = dir.to_string_lossy();
        // kcat has no way to make a topic but to ask for its metadata.
        let own = ["--system-config", "auto.create.topics.enable=true"];
        let up = highwater(&[&["cluster", "up", "--dir", &here], own.as_slice()].concat());
        assert_eq!(up.status.code(), Some(0), "{}", said(&up));
        let text = said(&up);
        let bootstrap = text
            .lines()
            .find_map(|line| line.strip_prefix("bootstrap "))
            .unwrap_or_else(|| panic!("no bootstrap in {text}"))
            .trim()
            .to_owned();
        Self { _folder: folder, dir, bootstrap }
    }

    /// Runs a command on the driver's side of the cluster's network; fails unless it succeeds.
    fn run(&self, command: &[&str], input: &str) -> String {
        let output = self.exec(command, input);
        assert!(output.status.success(), "{command:?} failed: {}", said(&output));
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    fn exec(&self, command: &[&str], input: &str) -> Output {
        let place = self.dir.join("input");
        fs::write(&place, input).expect("a file");
        Command::new(crate::driver::PROGRAM)
            .args(["cluster", "exec", "--"])
            .args(command)
            .stdin(Stdio::from(fs::File::open(place).expect("the input")))
            .output()
            .expect("it can be run")
    }
}

impl Drop for ByHand {
    fn drop(&mut self) {
        let down = highwater(&["cluster", "down"]);
        if !std::thread::panicking() {
            assert_eq!(down.status.code(), Some(0), "{}", said(&down));
            let here = self.dir.to_string_lossy().into_owned();
            eventually("the nodes to be gone", || processes_naming(&here).is_empty());
        }
    }
}

/// kcat: what there is, a produce under acks=all, a consume from the beginning, and in a group.
pub(crate) fn kcat() {
    let cluster = ByHand::up();
    let broker = cluster.bootstrap.clone();
    let kcat = |arguments: &[&str], input: &str| {
        cluster.run(&[&["kcat", "-b", &broker], arguments].concat(), input)
    };
    let text = kcat(&["-L", "-J"], "");
    let metadata: Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!(metadata["brokers"].as_array().map(Vec::len), Some(3), "{text}");

    for codec in ["none", "gzip", "snappy", "lz4", "zstd"] {
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
    let group = ["-G", "readers", "-o", "beginning", "-e", "-q"];
    let reset = ["-X", "auto.offset.reset=earliest", "of-none", "of-zstd"];
    let all = kcat(&[group.as_slice(), reset.as_slice()].concat(), "");
    assert_eq!(all.lines().count(), 1000);
    let again = kcat(&[group.as_slice(), reset.as_slice()].concat(), "");
    assert_eq!(again.lines().count(), 0, "{again}");
}
