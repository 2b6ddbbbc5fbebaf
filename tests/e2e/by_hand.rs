//! A cluster to work with by hand.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use crate::driver::{eventually, highwater, processes_naming, said};

/// A cluster by hand, taken down at the end.
pub(crate) struct ByHand {
    _folder: tempfile::TempDir,
    /// Where it lives.
    pub(crate) dir: PathBuf,
    /// The nodes' folders.
    pub(crate) files: PathBuf,
    /// For clients.
    pub(crate) bootstrap: String,
}

impl ByHand {
    /// Three nodes of the in-repo broker, started with these arguments besides.
    pub(crate) fn up(arguments: &[&str]) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let dir = folder.path().canonicalize().expect("a path");
        let here = dir.to_string_lossy();
        let up = highwater(&[&["cluster", "up", "--dir", &here], arguments].concat());
        assert_eq!(up.status.code(), Some(0), "{}", said(&up));
        let text = said(&up);
        let told = |what: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(what));
            line.unwrap_or_else(|| panic!("no {what} in {text}")).trim().to_owned()
        };
        let (files, bootstrap) = (told("files ").into(), told("bootstrap "));
        Self { _folder: folder, dir, files, bootstrap }
    }

    /// Runs a command on the driver's side of the cluster's network; fails unless it succeeds.
    pub(crate) fn run(&self, command: &[&str], input: &str) -> String {
        let output = self.exec(command, input);
        assert!(output.status.success(), "{command:?} failed: {}", said(&output));
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// The same, whatever becomes of it.
    pub(crate) fn exec(&self, command: &[&str], input: &str) -> Output {
        let place = self.dir.join("input");
        fs::write(&place, input).expect("a file");
        Command::new(crate::driver::PROGRAM)
            // Cargo's would let kcat load the librdkafka that this program was built with.
            .env_remove("LD_LIBRARY_PATH")
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

/// Up, a look, a command inside, down.
pub(crate) fn up_status_exec_down(system: &str, backend: &str) {
    let folder = tempfile::tempdir().expect("a folder");
    let dir = folder.path().canonicalize().expect("a path");
    let here = dir.to_string_lossy();
    let up = ["cluster", "up", "--system", system, "--backend", backend, "--dir", &here];
    let up = highwater(&up);
    assert_eq!(up.status.code(), Some(0), "{}", said(&up));
    let twice = highwater(&["cluster", "up", "--backend", backend]);
    assert_eq!(twice.status.code(), Some(64), "{}", said(&twice));
    let status = highwater(&["cluster", "status"]);
    assert_eq!(status.status.code(), Some(0), "{}", said(&status));
    assert_eq!(said(&status).matches("holds n1 n2 n3 for alive").count(), 3, "{}", said(&status));
    let inside = highwater(&[
        "cluster",
        "exec",
        "--node",
        "n2",
        "--",
        "sh",
        "-c",
        "cat /proc/net/fib_trie; exit 7",
    ]);
    assert_eq!(inside.status.code(), Some(7), "{}", said(&inside));
    let address = said(&status)
        .lines()
        .find_map(|line| line.strip_prefix("n2")?.split_whitespace().next().map(str::to_owned))
        .expect("n2 has an address");
    assert!(said(&inside).contains(&address), "{address} is not in {}", said(&inside));
    let unknown = highwater(&["cluster", "exec", "--node", "n9", "--", "true"]);
    assert_eq!(unknown.status.code(), Some(64), "{}", said(&unknown));
    let down = highwater(&["cluster", "down"]);
    assert_eq!(down.status.code(), Some(0), "{}", said(&down));
    assert_eq!(highwater(&["cluster", "status"]).status.code(), Some(69));
    eventually("the nodes to be gone", || processes_naming(&dir.to_string_lossy()).is_empty());
}
