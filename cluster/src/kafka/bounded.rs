//! Running a program to its end, but not for ever.

use std::io;
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

const BETWEEN_LOOKS: Duration = Duration::from_millis(20);

/// Runs `command` with nothing on its standard input; what it printed.
///
/// # Errors
/// In words: it cannot be run, or did not end within `deadline` and was killed.
pub(super) fn output(command: &mut Command, deadline: Duration) -> Result<Output, String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| format!("`{name}` cannot be run: {error}"))?;
    let (stdout, stderr) = (drain(child.stdout.take()), drain(child.stderr.take()));
    let status = wait(&mut child, deadline).map_err(|error| format!("`{name}`: {error}"))?;
    // Somebody who inherited the pipe may hold it open longer than the program lives.
    let rest = Duration::from_secs(1);
    let text = |pipe: mpsc::Receiver<Vec<u8>>| pipe.recv_timeout(rest).unwrap_or_default();
    Ok(Output { status, stdout: text(stdout), stderr: text(stderr) })
}

/// Waits for the end of `child`, and kills it when `deadline` passes.
///
/// # Errors
/// In words, when it had to be killed or cannot be waited for.
pub(super) fn wait(
    child: &mut Child,
    deadline: Duration,
) -> Result<std::process::ExitStatus, String> {
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

fn drain(pipe: Option<impl io::Read + Send + 'static>) -> mpsc::Receiver<Vec<u8>> {
    let (sender, receiver) = mpsc::channel();
    if let Some(mut pipe) = pipe {
        thread::spawn(move || {
            let mut bytes = Vec::new();
            let _ = pipe.read_to_end(&mut bytes);
            let _ = sender.send(bytes);
        });
    }
    receiver
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
