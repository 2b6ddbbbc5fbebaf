//! Re-executing the driver inside namespaces of its own.
//!
//! The outer process makes the namespaces, starts the same program again as the first process of
//! the new pid namespace, passes signals on and waits. The inner one does the work. If the outer
//! one dies, the inner one is killed; if the inner one dies, the kernel ends all that lives in
//! its pid namespace.

use std::env;
use std::ffi::OsString;
use std::fs;
use std::io::{self, Read};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::PathBuf;
use std::process::{Command, ExitStatus, Stdio};
use std::thread;

use nix::errno::Errno;
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use nix::sys::prctl;
use nix::sys::signal::{SigSet, Signal, kill};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::{Pid, getegid, geteuid};

use crate::backend::BackendError;
use crate::netns::run_command;
use crate::proc_stat::start_ticks;

/// Set for the inner process; its value is the pid of the outer one, for people.
const MARK: &str = "HIGHWATER_SANDBOX";
/// Set beside it: when the outer process started, in clock ticks since boot.
const MARK_TICKS: &str = "HIGHWATER_SANDBOX_TICKS";

/// Is this the inner process?
pub fn is_inside() -> bool {
    env::var_os(MARK).is_some() && std::process::id() == 1
}

/// The outer process's pid on the host, in the inner process.
pub fn outer_pid() -> Option<i32> {
    env::var(MARK).ok()?.parse().ok()
}

/// When the outer process started, in clock ticks since boot (field 22 of `/proc/PID/stat`).
pub fn outer_start_ticks() -> Option<u64> {
    env::var(MARK_TICKS).ok()?.parse().ok()
}

/// The PATH, with the folders of system programs, which ordinary users' PATHs often leave out.
pub fn search_path() -> OsString {
    let path = env::var_os("PATH").unwrap_or_default();
    let mut dirs: Vec<PathBuf> = env::split_paths(&path).collect();
    for system in ["/usr/local/sbin", "/usr/sbin", "/sbin"].map(PathBuf::from) {
        if !dirs.contains(&system) {
            dirs.push(system);
        }
    }
    env::join_paths(dirs).unwrap_or(path)
}

/// Enters new namespaces, runs this program again in them with the same arguments, and returns
/// how that ended. The caller must be single-threaded.
///
/// # Errors
/// [`BackendError::Unsupported`] where the kernel forbids namespaces, with what to do.
pub fn run_inside() -> Result<ExitStatus, BackendError> {
    unshare_all()?;
    let program = env::current_exe().map_err(|error| failed("find this program", &error))?;
    let signals = forwarded_signals();
    signals.thread_block().map_err(|error| failed("block signals", &error))?;
    // Held open for as long as this process lives: the inner one reads its standard input to
    // learn that the outer one is gone.
    let (lifeline, held) = io::pipe().map_err(|error| failed("make a pipe", &error))?;
    let child = Command::new(program)
        .args(env::args_os().skip(1))
        .env(MARK, std::process::id().to_string())
        .env(MARK_TICKS, start_ticks(std::process::id()).unwrap_or_default().to_string())
        .env("PATH", search_path())
        .stdin(Stdio::from(lifeline))
        // A Ctrl-C at the terminal reaches the outer process alone, which passes it on: once.
        .process_group(0)
        .spawn()
        .map_err(|error| failed("start the driver inside its namespaces", &error))?;
    let status = wait_and_forward(Pid::from_raw(child.id().cast_signed()), &signals);
    drop(held);
    status.map_err(|error| failed("wait for the driver inside its namespaces", &error))
}

/// Makes the inner process at home: to be called first thing in it, before other threads start.
///
/// # Errors
/// [`BackendError`] where `/proc` cannot be mounted or the loopback interface cannot be raised.
pub fn settle_inside() -> Result<(), BackendError> {
    // The outer process blocks the signals that it waits for, and a mask is inherited.
    SigSet::all().thread_unblock().map_err(|error| failed("unblock signals", &error))?;
    prctl::set_pdeathsig(Signal::SIGKILL).map_err(|error| failed("tie the processes", &error))?;
    thread::Builder::new()
        .name("lifeline".into())
        .spawn(|| {
            // Ends only when the outer process is gone, also if it died before `set_pdeathsig`.
            let _ = io::stdin().lock().read_to_end(&mut Vec::new());
            std::process::exit(70);
        })
        .map_err(|error| failed("start a thread", &error))?;
    mount(Some("proc"), "/proc", Some("proc"), MsFlags::empty(), None::<&str>).map_err(
        |error| unsupported(
            format!("a fresh /proc could not be mounted ({error})"),
            "Inside a container, run it with unmasked /proc (docker run --security-opt systempaths=unconfined), or use --backend docker",
        ),
    )?;
    run_command(&["ip", "link", "set", "lo", "up"], "")
        .map_err(|error| failed("raise the loopback interface", &error))?;
    Ok(())
}

/// Can namespaces be made here? Tried in a child that ends at once.
///
/// # Errors
/// [`BackendError::Unsupported`] with the reason and the remedy.
pub fn probe() -> Result<(), BackendError> {
    let mut command = Command::new("unshare");
    if !geteuid().is_root() {
        command.args(["--user", "--map-root-user"]);
    }
    let output = command
        .args(["--mount", "--net", "--pid", "--fork", "true"])
        .stdin(Stdio::null())
        .output()
        .map_err(|error| {
            unsupported(format!("`unshare` cannot be run ({error})"), "Install util-linux")
        })?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(unsupported(format!("the kernel refuses new namespaces ({})", said.trim()), &remedy()))
}

fn unshare_all() -> Result<(), BackendError> {
    let (uid, gid) = (geteuid(), getegid());
    let mut flags = CloneFlags::CLONE_NEWNS | CloneFlags::CLONE_NEWNET | CloneFlags::CLONE_NEWPID;
    if !uid.is_root() {
        flags |= CloneFlags::CLONE_NEWUSER;
    }
    unshare(flags).map_err(|error| {
        unsupported(format!("the kernel refuses new namespaces ({error})"), &remedy())
    })?;
    if !uid.is_root() {
        let maps = [
            ("/proc/self/setgroups", "deny".to_owned()),
            ("/proc/self/uid_map", format!("0 {uid} 1")),
            ("/proc/self/gid_map", format!("0 {gid} 1")),
        ];
        for (file, text) in maps {
            fs::write(file, text).map_err(|error| failed(&format!("write {file}"), &error))?;
        }
    }
    // What is mounted in here must not show outside.
    mount(None::<&str>, "/", None::<&str>, MsFlags::MS_REC | MsFlags::MS_PRIVATE, None::<&str>)
        .map_err(|error| failed("make mounts private", &error))
}

fn forwarded_signals() -> SigSet {
    [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP, Signal::SIGQUIT, Signal::SIGCHLD]
        .into_iter()
        .collect()
}

fn wait_and_forward(child: Pid, signals: &SigSet) -> io::Result<ExitStatus> {
    loop {
        match waitpid(child, Some(WaitPidFlag::WNOHANG)) {
            Ok(WaitStatus::Exited(_, code)) => return Ok(ExitStatus::from_raw(code << 8)),
            Ok(WaitStatus::Signaled(_, signal, _)) => {
                return Ok(ExitStatus::from_raw(signal as i32));
            }
            Ok(_) | Err(Errno::EINTR) => {}
            Err(error) => return Err(error.into()),
        }
        match signals.wait()? {
            Signal::SIGCHLD => {}
            // The child may have ended just now; then the next turn sees it.
            other => drop(kill(child, other)),
        }
    }
}

fn remedy() -> String {
    let read = |file: &str| fs::read_to_string(file).unwrap_or_default().trim().to_owned();
    if geteuid().is_root() {
        return "Inside a container, run it with --privileged (or --cap-add SYS_ADMIN,NET_ADMIN), or use --backend docker".into();
    }
    if read("/proc/sys/kernel/unprivileged_userns_clone") == "0" {
        return "As root: sysctl kernel.unprivileged_userns_clone=1; or run as root, or use --backend docker".into();
    }
    if read("/proc/sys/user/max_user_namespaces") == "0" {
        return "As root: sysctl user.max_user_namespaces=10000; or run as root, or use --backend docker".into();
    }
    if read("/proc/sys/kernel/apparmor_restrict_unprivileged_userns") == "1" {
        return "As root: sysctl kernel.apparmor_restrict_unprivileged_userns=0; or run as root, or use --backend docker".into();
    }
    "Allow user namespaces for this user, run as root, or use --backend docker".into()
}

fn unsupported(reason: String, remedy: &str) -> BackendError {
    BackendError::Unsupported { backend: "namespaces", reason, remedy: remedy.to_owned() }
}

fn failed(context: &str, error: &dyn std::error::Error) -> BackendError {
    BackendError::Failed { context: format!("cannot {context}"), reason: error.to_string() }
}
