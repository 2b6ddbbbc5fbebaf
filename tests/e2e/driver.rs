//! The program under test, started as a user starts it.

use std::fs;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

/// The binary that cargo built.
pub(crate) const PROGRAM: &str = env!("CARGO_BIN_EXE_highwater");
/// A run of a few seconds takes this long at most, on a machine that does other things too.
pub(crate) const PATIENCE: Duration = Duration::from_secs(300);

/// Runs the program to its end.
pub(crate) fn highwater(arguments: &[&str]) -> Output {
    Command::new(PROGRAM).args(arguments).stdin(Stdio::null()).output().expect("it can be run")
}

/// Both streams, for messages.
pub(crate) fn said(output: &Output) -> String {
    format!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    )
}

/// A run in the background.
pub(crate) struct Running {
    child: Child,
    /// Where it is stored.
    pub(crate) results: PathBuf,
    stderr: thread::JoinHandle<String>,
}

impl Running {
    /// Starts `highwater test` of `system` with a short, gentle load and these arguments.
    pub(crate) fn start(system: &str, results: &Path, arguments: &[&str]) -> Self {
        let mut child = Command::new(PROGRAM)
            .arg("test")
            .arg("--results")
            .arg(results)
            .args(["--system", system, "--rate", "300", "--seed", "5"])
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("it can be started");
        let mut stream = child.stderr.take().expect("it is piped");
        let stderr = thread::spawn(move || {
            let mut text = String::new();
            let _ = stream.read_to_string(&mut text);
            text
        });
        Self { child, results: results.to_owned(), stderr }
    }

    /// Waits until the run's own log holds `text`.
    pub(crate) fn await_log(&mut self, text: &str) {
        let begun = Instant::now();
        loop {
            let log = fs::read_to_string(self.results.join("latest/driver.log"));
            if log.is_ok_and(|log| log.contains(text)) {
                return;
            }
            let ended = self.child.try_wait().expect("it can be waited for");
            assert!(ended.is_none(), "it ended ({ended:?}) before it said `{text}`");
            assert!(begun.elapsed() < PATIENCE, "it has not said `{text}` within {PATIENCE:?}");
            thread::sleep(Duration::from_millis(20));
        }
    }

    /// Sends a signal, by its number's name, to the process that the user started.
    pub(crate) fn signal(&self, name: &str) {
        let pid = self.child.id().to_string();
        let sent = Command::new("kill").args(["-s", name.trim_start_matches("SIG"), &pid]).status();
        assert!(sent.expect("kill runs").success(), "{name} could not be sent to {pid}");
    }

    /// Its exit code (`None`: ended by a signal) and what it said on standard error.
    pub(crate) fn wait(mut self) -> (Option<i32>, String) {
        let begun = Instant::now();
        let status = loop {
            if let Some(status) = self.child.try_wait().expect("it can be waited for") {
                break status;
            }
            if begun.elapsed() > PATIENCE {
                let _ = self.child.kill();
                panic!("it did not end within {PATIENCE:?}");
            }
            thread::sleep(Duration::from_millis(50));
        };
        (status.code(), self.stderr.join().expect("its output can be read"))
    }
}

/// A file of the latest run as JSON.
pub(crate) fn json(results: &Path, file: &str) -> Value {
    let path = results.join("latest").join(file);
    let text = fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    serde_json::from_str(&text).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// Processes whose command line names `text`.
pub(crate) fn processes_naming(text: &str) -> Vec<String> {
    let entries = fs::read_dir("/proc").expect("/proc can be listed");
    entries
        .flatten()
        .filter(|entry| entry.file_name().to_string_lossy().chars().all(|c| c.is_ascii_digit()))
        .filter_map(|entry| {
            let line = fs::read(entry.path().join("cmdline")).ok()?;
            let line = String::from_utf8_lossy(&line).replace('\0', " ");
            line.contains(text).then(|| format!("{}: {line}", entry.file_name().display()))
        })
        .collect()
}

/// Waits until `holds`; the message says what was awaited.
pub(crate) fn eventually(awaited: &str, mut holds: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < Duration::from_secs(30), "gave up waiting for {awaited}");
        thread::sleep(Duration::from_millis(50));
    }
}
