//! A node's process: started in namespaces of its own, watched by a thread that waits for its end.

use std::fs::{self, OpenOptions};
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, ExitStatus, Stdio};
use std::thread;
use std::time::Duration;

use nix::sched::{CloneFlags, unshare};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tokio::sync::watch;

use crate::backend::Output;
use crate::netns::NetworkNamespace;
use crate::node::{Launch, NodeSpec};
use crate::proc_stat::state_of;

/// A process that was started, running or gone. It is the first of its pid namespace: when it
/// dies, whatever it started dies with it.
#[derive(Debug)]
pub(super) struct NodeProcess {
    /// In the driver's pid namespace.
    pub(super) pid: i32,
    /// Exit code once it is gone.
    pub(super) exit: watch::Receiver<Option<i32>>,
}

impl NodeProcess {
    /// Starts `launch` for `node`, its output appended to the node's `stdout.log`.
    pub(super) fn start(
        namespace: &NetworkNamespace,
        node: &NodeSpec,
        launch: &Launch,
    ) -> io::Result<Self> {
        for dir in [node.config_dir(), node.data_dir(), node.logs_dir()] {
            fs::create_dir_all(dir)?;
        }
        let log = OpenOptions::new().create(true).append(true).open(node.stdout_log())?;
        let streams = (log.try_clone()?, log);
        let mut child = namespace.inside(|| {
            isolate()?;
            command(node, launch).stdout(streams.0).stderr(streams.1).spawn()
        })?;
        let pid = child.id().cast_signed();
        let (sender, exit) = watch::channel(None);
        thread::Builder::new().name(format!("wait-{}", node.name)).spawn(move || {
            let code = child.wait().map_or(-1, code_of);
            let _ = sender.send(Some(code));
        })?;
        Ok(Self { pid, exit })
    }

    /// Every process of the node, in the driver's pid namespace.
    pub(super) fn pids(&self) -> Vec<i32> {
        let space_of = |pid: i32| fs::read_link(format!("/proc/{pid}/ns/pid")).ok();
        let Some(space) = space_of(self.pid) else {
            return vec![self.pid];
        };
        let Ok(entries) = fs::read_dir("/proc") else {
            return vec![self.pid];
        };
        entries
            .flatten()
            .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
            .filter(|pid| space_of(*pid).as_ref() == Some(&space))
            .collect()
    }

    /// Sends a signal to every process of the node.
    pub(super) fn signal_all(&self, signal: Signal) -> io::Result<()> {
        for pid in self.pids() {
            match kill(Pid::from_raw(pid), signal) {
                Ok(()) | Err(nix::errno::Errno::ESRCH) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// Has every thread group of the node stopped?
    pub(super) fn is_stopped(&self) -> bool {
        self.pids()
            .into_iter()
            .all(|pid| state_of(pid).is_none_or(|state| matches!(state, 'T' | 'Z' | 'X')))
    }
}

/// Runs `launch` to its end with the node's network; what it printed.
pub(super) fn run_to_end(
    namespace: &NetworkNamespace,
    node: &NodeSpec,
    launch: &Launch,
    deadline: Duration,
) -> io::Result<Option<Output>> {
    fs::create_dir_all(&node.dir)?;
    let child = namespace.inside(|| {
        isolate()?;
        command(node, launch).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()
    })?;
    let pid = Pid::from_raw(child.id().cast_signed());
    let (sender, receiver) = std::sync::mpsc::channel();
    thread::Builder::new().name(format!("exec-{}", node.name)).spawn(move || {
        let _ = sender.send(child.wait_with_output());
    })?;
    let Ok(output) = receiver.recv_timeout(deadline) else {
        kill(pid, Signal::SIGKILL)?;
        return Ok(None);
    };
    output.map(|output| {
        Some(Output {
            code: code_of(output.status),
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        })
    })
}

/// What this thread starts next is the first process of a new pid namespace, with mounts of its own.
fn isolate() -> io::Result<()> {
    Ok(unshare(CloneFlags::CLONE_NEWNS | CloneFlags::CLONE_NEWPID)?)
}

fn command(node: &NodeSpec, launch: &Launch) -> Command {
    let mut argv = launch.argv.iter();
    let mut command = Command::new(argv.next().map_or("", String::as_str));
    command.args(argv).env_clear().envs(&launch.env).current_dir(&node.dir).stdin(Stdio::null());
    if let Some(path) = std::env::var_os("PATH") {
        command.env("PATH", path);
    }
    command
}

fn code_of(status: ExitStatus) -> i32 {
    status.code().or_else(|| status.signal().map(|signal| 128 + signal)).unwrap_or(-1)
}
