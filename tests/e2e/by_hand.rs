//! A cluster to work with by hand.

use crate::driver::{eventually, highwater, processes_naming, said};

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
