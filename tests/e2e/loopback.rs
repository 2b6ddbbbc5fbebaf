//! Three nodes of the in-repo broker on this machine's loopback, and whoever asks them.

use std::fs;
use std::net::{Ipv4Addr, SocketAddrV4, TcpListener};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use cluster::probe::{self, ProbeError};
use kafka_protocol::protocol::Request;
use tokio::runtime::Builder;

use crate::driver::PROGRAM;

/// Longest wait for one answer.
const LIMIT: Duration = Duration::from_secs(20);

/// The nodes; killed at the end.
pub(crate) struct Loopback {
    folder: tempfile::TempDir,
    nodes: Vec<Child>,
    /// Where clients find node 1 and so on.
    pub(crate) clients: Vec<SocketAddrV4>,
    /// Where controllers find each other.
    pub(crate) controllers: Vec<SocketAddrV4>,
}

fn free_ports<const N: usize>() -> [u16; N] {
    let held: [TcpListener; N] =
        std::array::from_fn(|_| TcpListener::bind("127.0.0.1:0").expect("a free port"));
    held.each_ref().map(|listener| listener.local_addr().expect("an address").port())
}

impl Loopback {
    /// Three nodes with these settings besides.
    pub(crate) fn up(settings: &str) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let ports: [u16; 9] = free_ports();
        let of = |node: usize| <[u16; 3]>::try_from(&ports[node * 3..][..3]).expect("three");
        let voters: Vec<String> =
            (0..3).map(|node| format!("{}@127.0.0.1:{}", node + 1, of(node)[2])).collect();
        let voters = voters.join(",");
        let mut nodes = Vec::new();
        for node in 0..3 {
            let [client, broker, controller] = of(node);
            let here = folder.path().join(format!("n{}", node + 1));
            fs::create_dir(&here).expect("a folder");
            let config = here.join("server.properties");
            let text = format!(
                "node.id={}\ncontroller.quorum.voters={voters}\n\
                 listeners=CLIENT://127.0.0.1:{client},BROKER://127.0.0.1:{broker},\
                 CONTROLLER://127.0.0.1:{controller}\nlog.dirs={}\n{settings}\n",
                node + 1,
                here.join("data").display(),
            );
            fs::write(&config, text).expect("a file");
            let log = fs::File::create(here.join("log")).expect("a file");
            nodes.push(
                Command::new(PROGRAM)
                    .args(["broker", "--config"])
                    .arg(&config)
                    .stdin(Stdio::null())
                    .stdout(log.try_clone().expect("a file"))
                    .stderr(log)
                    .spawn()
                    .expect("it can be started"),
            );
        }
        let listeners = |which: usize| {
            (0..3).map(|node| SocketAddrV4::new(Ipv4Addr::LOCALHOST, of(node)[which])).collect()
        };
        Self { folder, nodes, clients: listeners(0), controllers: listeners(2) }
    }

    /// What the nodes have logged as warnings.
    pub(crate) fn warnings(&self) -> String {
        let logs = (1..=3).map(|node| self.folder.path().join(format!("n{node}/log")));
        let text: String = logs.filter_map(|log| fs::read_to_string(log).ok()).collect();
        let warnings: Vec<&str> = text.lines().filter(|line| line.contains(" WARN ")).collect();
        warnings.join("\n")
    }
}

impl Drop for Loopback {
    fn drop(&mut self) {
        for node in &mut self.nodes {
            let _ = node.kill();
            let _ = node.wait();
        }
    }
}

/// Asks the node at `address` in this version, on a connection of its own.
pub(crate) fn ask<R: Request>(
    address: SocketAddrV4,
    version: i16,
    request: &R,
) -> Result<R::Response, ProbeError> {
    let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
    let (ip, port) = (*address.ip(), address.port());
    runtime.block_on(probe::ask(ip, port, version..=version, request, LIMIT))
}
