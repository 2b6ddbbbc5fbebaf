//! The gate before which a container's main process waits until its network is as it shall be.

use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::libc::O_NONBLOCK;
use nix::sys::stat::Mode;
use nix::unistd::mkfifo;

use crate::node::{Launch, NodeSpec};

/// Exit code of a shell that was let go without the word.
const TURNED_AWAY: &str = "125";

/// Waits for the word, then becomes the node's program, under its own pid, with nothing inherited
/// but PATH. Arguments: the gate, the log, then `NAME=value` pairs and the program's own.
const WAIT_AND_BECOME: &str = "\
word=
read -r word <\"$1\"
[ \"$word\" = open ] || exit TURNED_AWAY
log=$2
shift 2
exec env -i \"PATH=$PATH\" \"$@\" >>\"$log\" 2>&1";

/// Becomes the program at once. Arguments: `NAME=value` pairs and the program's own.
const BECOME: &str = "exec env -i \"PATH=$PATH\" \"$@\"";

/// Where the gate of a node lies.
pub(super) fn path(node: &NodeSpec) -> PathBuf {
    node.dir.join("gate")
}

/// The main command of a node's container.
pub(super) fn command_behind_gate(node: &NodeSpec, launch: &Launch) -> Vec<String> {
    let script = WAIT_AND_BECOME.replace("TURNED_AWAY", TURNED_AWAY);
    let files = [path(node), node.stdout_log()];
    let files = files.iter().map(|file| file.display().to_string());
    ["sh".into(), "-c".into(), script, "sh".into()]
        .into_iter()
        .chain(files)
        .chain(environment_and_program(launch))
        .collect()
}

/// The main command of a container that runs `launch` to its end.
pub(super) fn command(launch: &Launch) -> Vec<String> {
    ["sh", "-c", BECOME, "sh"]
        .into_iter()
        .map(str::to_owned)
        .chain(environment_and_program(launch))
        .collect()
}

fn environment_and_program(launch: &Launch) -> impl Iterator<Item = String> + '_ {
    let pairs = launch.env.iter().map(|(name, value)| format!("{name}={value}"));
    pairs.chain(launch.argv.iter().cloned())
}

/// Makes a new, closed gate.
pub(super) fn close(gate: &Path) -> io::Result<()> {
    match fs::remove_file(gate) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    Ok(mkfifo(gate, Mode::S_IRUSR | Mode::S_IWUSR)?)
}

/// Opens the gate if someone waits before it; else `false`.
pub(super) fn try_open(gate: &Path) -> io::Result<bool> {
    // Without O_NONBLOCK this would wait for a reader, maybe for ever.
    match OpenOptions::new().write(true).custom_flags(O_NONBLOCK).open(gate) {
        Ok(mut gate) => gate.write_all(b"open\n").map(|()| true),
        Err(error) if error.raw_os_error() == Some(Errno::ENXIO as i32) => Ok(false),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};
    use std::time::{Duration, Instant};

    use super::*;

    #[test]
    fn the_program_runs_only_once_the_gate_is_open_and_keeps_its_pid() {
        let dir = tempfile::tempdir().unwrap();
        let node = NodeSpec::sample(1, dir.path());
        fs::create_dir_all(node.logs_dir()).unwrap();
        close(&path(&node)).unwrap();
        let mut launch = Launch::new(["sh", "-c", "echo $$ \"$A\" \"$HOME\"; echo e >&2; exit 7"]);
        launch.env.insert("A".into(), "x  y".into());
        let command = command_behind_gate(&node, &launch);
        let mut child =
            Command::new(&command[0]).args(&command[1..]).stdin(Stdio::null()).spawn().unwrap();
        assert!(!node.stdout_log().exists());
        let begun = Instant::now();
        while !try_open(&path(&node)).unwrap() {
            assert!(begun.elapsed() < Duration::from_secs(10), "nobody comes to the gate");
            std::thread::sleep(Duration::from_millis(2));
        }
        assert_eq!(child.wait().unwrap().code(), Some(7));
        let log = fs::read_to_string(node.stdout_log()).unwrap();
        assert_eq!(log, format!("{} x  y \ne\n", child.id()));
    }

    #[test]
    fn nobody_at_the_gate_is_no_error() {
        let dir = tempfile::tempdir().unwrap();
        let gate = dir.path().join("gate");
        close(&gate).unwrap();
        close(&gate).unwrap();
        assert!(!try_open(&gate).unwrap());
        assert!(try_open(&dir.path().join("none")).is_err());
    }

    #[test]
    fn a_one_off_gets_its_variables_and_arguments() {
        let mut launch = Launch::new(["printf", "%s|%s", "a b", "$c"]);
        launch.env.insert("N".into(), "v".into());
        assert_eq!(command(&launch)[4..], ["N=v", "printf", "%s|%s", "a b", "$c"]);
    }
}
