//! Three nodes of the in-repo broker on this machine's loopback, and a client of bare frames.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use bytes::{Buf as _, BufMut as _, Bytes, BytesMut};
use kafka_protocol::messages::{ApiKey, RequestHeader, ResponseHeader};
use kafka_protocol::protocol::{Decodable as _, Encodable as _, Request, StrBytes};

use crate::driver::PROGRAM;

/// Longest wait for one answer.
const LIMIT: Duration = Duration::from_secs(20);

/// The nodes; killed at the end.
pub(crate) struct Loopback {
    folder: tempfile::TempDir,
    nodes: Vec<Child>,
    /// Where clients find node 1 and so on.
    pub(crate) clients: Vec<SocketAddr>,
    /// Where controllers find each other.
    pub(crate) controllers: Vec<SocketAddr>,
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
            (0..3).map(move |node| ([127, 0, 0, 1], of(node)[which]).into()).collect()
        };
        Self { folder, nodes, clients: listeners(0), controllers: listeners(2) }
    }

    /// What the nodes have logged as warnings.
    pub(crate) fn warnings(&self) -> String {
        let logs = (1..=3).map(|node| self.folder.path().join(format!("n{node}/log")));
        let text: String = logs.filter_map(|log| fs::read_to_string(log).ok()).collect();
        text.lines()
            .filter(|line| line.contains(" WARN "))
            .fold(String::new(), |all, line| all + line + "\n")
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

/// Asks the node at `address`, on a connection of its own.
pub(crate) fn ask<R: Request>(
    address: SocketAddr,
    version: i16,
    request: &R,
) -> Result<R::Response, String> {
    let key = ApiKey::try_from(R::KEY).map_err(|()| "no such API".to_owned())?;
    let mut body = BytesMut::new();
    RequestHeader::default()
        .with_request_api_key(R::KEY)
        .with_request_api_version(version)
        .with_correlation_id(7)
        .with_client_id(Some(StrBytes::from_static_str("loopback")))
        .encode(&mut body, key.request_header_version(version))
        .and_then(|()| request.encode(&mut body, version))
        .map_err(|error| format!("the test asks what {key:?} {version} cannot: {error}"))?;
    let mut frame = BytesMut::new();
    frame.put_i32(i32::try_from(body.len()).expect("a short request"));
    frame.put(body);
    let answer =
        exchange(address, &frame).map_err(|error| format!("{key:?} {version}: {error}"))?;
    let mut answer = Bytes::from(answer);
    ResponseHeader::decode(&mut answer, key.response_header_version(version))
        .and_then(|header| {
            assert_eq!(header.correlation_id, 7, "{key:?} {version}");
            R::Response::decode(&mut answer, version)
        })
        .map_err(|error| format!("{key:?} {version} cannot be decoded: {error}"))
        .and_then(|response| match answer.remaining() {
            0 => Ok(response),
            more => Err(format!("{key:?} {version}: {more} bytes follow")),
        })
}

fn exchange(address: SocketAddr, frame: &[u8]) -> std::io::Result<Vec<u8>> {
    let mut stream = TcpStream::connect_timeout(&address, LIMIT)?;
    stream.set_read_timeout(Some(LIMIT))?;
    stream.write_all(frame)?;
    let mut length = [0; 4];
    stream.read_exact(&mut length)?;
    let mut answer = vec![0; usize::try_from(i32::from_be_bytes(length)).unwrap_or(0)];
    stream.read_exact(&mut answer)?;
    Ok(answer)
}
