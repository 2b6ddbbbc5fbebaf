//! Running a program to its end, but not for ever.

use std::fs::File;
use std::io::{self, Read as _, Seek as _};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

const BETWEEN_LOOKS: Duration = Duration::from_millis(20);

/// Runs `command` with nothing on its standard input; what it printed.
///
/// The output goes through files: to read two pipes takes threads, and whoever goes on to enter
/// a user namespace must have none.
///
/// # Errors
/// In words: it cannot be run, or did not end within `deadline` and was killed.
pub(super) fn output(command: &mut Command, deadline: Duration) -> Result<Output, String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let told = |error: io::Error| format!("`{name}` cannot be run: {error}");
    let (mut stdout, mut stderr) =
        (tempfile::tempfile().map_err(told)?, tempfile::tempfile().map_err(told)?);
    let mut child = command
        .stdin(Stdio::null())
        .stdout(stdout.try_clone().map_err(told)?)
        .stderr(stderr.try_clone().map_err(told)?)
        .spawn()
        .map_err(told)?;
    let status = wait(&mut child, deadline).map_err(|error| format!("`{name}`: {error}"))?;
    let (stdout, stderr) = (read(&mut stdout).map_err(told)?, read(&mut stderr).map_err(told)?);
    Ok(Output { status, stdout, stderr })
}

fn read(file: &mut File) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    file.rewind()?;
    file.read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Waits for the end of `child`, and kills it when `deadline` passes.
///
/// # Errors
/// In words, when it had to be killed or cannot be waited for.
pub(super) fn wait(child: &mut Child, deadline: Duration) -> Result<ExitStatus, String> {
    let begun = Instant::now();
    loop {
        match child.try_wait() {
            Ok(Some(status)) => return Ok(status),
            Ok(None) if begun.elapsed() < deadline => thread::sleep(BETWEEN_LOOKS),
            Ok(None) => {
                end(child);
                return Err(format!(
                    "it did not end within {} s, and was killed",
                    deadline.as_secs()
                ));
            }
            Err(error) => return Err(format!("it cannot be waited for: {error}")),
        }
    }
}

/// Kills `child` and takes its exit code, so that nothing of it stays.
pub(super) fn end(child: &mut Child) {
    // An error here says that it has ended already.
    let _ = child.kill();
    let _ = child.wait();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_program_prints_comes_back() {
        let output = output(
            Command::new("sh").args(["-c", "echo out; echo err >&2; exit 3"]),
            Duration::from_secs(10),
        )
        .unwrap();
        assert_eq!(output.status.code(), Some(3));
        assert_eq!((output.stdout, output.stderr), (b"out\n".to_vec(), b"err\n".to_vec()));
    }

    #[test]
    fn a_program_that_does_not_end_is_killed() {
        let begun = Instant::now();
        let error = output(Command::new("sleep").arg("60"), Duration::from_millis(50)).unwrap_err();
        assert!(error.contains("`sleep`") && error.contains("killed"), "{error}");
        assert!(begun.elapsed() < Duration::from_secs(30));
    }

    #[test]
    fn a_program_that_is_not_there_is_named() {
        let error = output(&mut Command::new("no-such-program"), Duration::from_secs(1));
        assert!(error.unwrap_err().contains("`no-such-program` cannot be run"));
    }
}
