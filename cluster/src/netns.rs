//! Doing things inside another network namespace.
//!
//! `setns` moves one thread. So each piece of work gets a thread of its own, which ends with it:
//! no other part of the driver ever finds itself in a foreign namespace.

use std::fs::File;
use std::io;
use std::net::{Ipv4Addr, UdpSocket};
use std::os::fd::AsFd;
use std::process::{Command, Stdio};
use std::thread;

use crate::network::CHAINS;

use nix::sched::{CloneFlags, setns, unshare};
use tokio::net::TcpSocket;

/// A network namespace, kept alive by this handle alone.
#[derive(Debug)]
pub(crate) struct NetworkNamespace(File);

impl NetworkNamespace {
    /// Makes a new, empty one.
    pub(crate) fn create() -> io::Result<Self> {
        on_own_thread(|| {
            unshare(CloneFlags::CLONE_NEWNET)?;
            File::open("/proc/thread-self/ns/net").map(Self)
        })
    }

    /// The one that process `pid` lives in.
    pub(crate) fn of_process(pid: i32) -> io::Result<Self> {
        File::open(format!("/proc/{pid}/ns/net")).map(Self)
    }

    /// A path under which a child process of this one finds the namespace.
    pub(crate) fn path(&self) -> String {
        use std::os::fd::AsRawFd;
        format!("/proc/{}/fd/{}", std::process::id(), self.0.as_raw_fd())
    }

    /// Runs `work` on a thread that lives in this namespace.
    pub(crate) fn inside<T: Send>(
        &self,
        work: impl FnOnce() -> io::Result<T> + Send,
    ) -> io::Result<T> {
        on_own_thread(|| self.inside_here(work))
    }

    /// Moves this thread into the namespace, for good, and does `work` there: for a thread that was made
    /// for it.
    pub(crate) fn inside_here<T>(&self, work: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
        setns(self.0.as_fd(), CloneFlags::CLONE_NEWNET)?;
        work()
    }

    /// A UDP socket that stays in this namespace for as long as it is open.
    pub(crate) fn open_udp(&self, address: Ipv4Addr, port: u16) -> io::Result<UdpSocket> {
        self.inside(|| UdpSocket::bind((address, port)))
    }

    /// A TCP socket that belongs to this namespace for as long as it is open.
    pub(crate) fn open_tcp(&self) -> io::Result<TcpSocket> {
        self.inside(TcpSocket::new_v4)
    }

    /// Replaces the content of our firewall chains by `rules` (an `iptables-restore --noflush`
    /// text) and makes sure that packets are led through them, ahead of what others set.
    pub(crate) fn apply_firewall(&self, rules: &str) -> io::Result<()> {
        self.inside(|| {
            run_command(&["iptables-restore", "--noflush", "-w", "10"], rules)?;
            for (hook, chain) in CHAINS {
                let here = run_command(&["iptables", "-w", "10", "-S", hook], "")?;
                if !here.lines().any(|line| line == format!("-A {hook} -j {chain}")) {
                    run_command(&["iptables", "-w", "10", "-I", hook, "-j", chain], "")?;
                }
            }
            Ok(())
        })
    }

    /// Runs a command in this namespace with `input` on its standard input; its standard output.
    pub(crate) fn run(&self, argv: &[&str], input: &str) -> io::Result<String> {
        self.inside(|| run_command(argv, input))
    }
}

/// Runs a command to its end; its standard output, or an error with what it said.
pub(crate) fn run_command(argv: &[&str], input: &str) -> io::Result<String> {
    use std::io::Write;
    let [program, arguments @ ..] = argv else {
        return Err(io::Error::other("no command given"));
    };
    let mut child = Command::new(program)
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| io::Error::new(error.kind(), format!("`{program}`: {error}")))?;
    if let Some(mut stdin) = child.stdin.take() {
        // A command that fails before it reads all of it says so itself below.
        let _ = stdin.write_all(input.as_bytes());
    }
    let output = child.wait_with_output()?;
    if output.status.success() {
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    } else {
        Err(io::Error::other(format!(
            "`{}` failed ({}): {}",
            argv.join(" "),
            output.status,
            String::from_utf8_lossy(&output.stderr).trim()
        )))
    }
}

fn on_own_thread<T: Send>(work: impl FnOnce() -> io::Result<T> + Send) -> io::Result<T> {
    thread::scope(|scope| {
        thread::Builder::new()
            .name("netns".into())
            .spawn_scoped(scope, work)?
            .join()
            .unwrap_or_else(|_| Err(io::Error::other("the namespace thread panicked")))
    })
}
