//! Class-data sharing: an archive of the classes that a broker loads, already parsed.
//!
//! Made once for each distribution and Java, by running one broker from its start to its end.
//! Three brokers with it are up in two thirds of the time, with little more than half of the
//! processor time (`docs/kafka.md` has the numbers). Java checks the archive against its class
//! path at each start and does without it where it does not fit, so an old one does no harm; and
//! where none can be made, brokers start as they would without.

use std::fmt::Write as _;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant, UNIX_EPOCH};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use sha2::{Digest as _, Sha256};

use super::bounded;
use super::kraft::{HEAP, JVM, LOG_CONFIG};

/// A lone broker is up after 2 to 4 seconds on an idle machine.
const START_DEADLINE: Duration = Duration::from_secs(90);
/// Writing the archive takes some 3 seconds of it.
const DUMP_DEADLINE: Duration = Duration::from_secs(90);
const FORMAT_DEADLINE: Duration = Duration::from_secs(60);
const BETWEEN_LOOKS: Duration = Duration::from_millis(50);
/// What every Kafka of the 4 line logs when it serves.
const STARTED: &str = "Kafka Server started";
/// Sixteen bytes in base64, as good as any: this broker never meets another.
const CLUSTER_ID: &str = "AAAAAAAAAAAAAAAAAAAAAA";

/// What an archive is made from, and for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Recipe<'a> {
    /// The program.
    pub(super) java: &'a Path,
    /// What it says of its version.
    pub(super) java_version: &'a str,
    /// Every jar, in the order of the class path.
    pub(super) jars: &'a [PathBuf],
    /// For `-cp`: the same.
    pub(super) classpath: &'a str,
}

/// What is known of the archive of a recipe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Known {
    /// Here it is.
    Archive(PathBuf),
    /// It was tried, in vain.
    CannotBeMade,
    /// Nobody has tried.
    Nothing,
}

impl Recipe<'_> {
    /// Changes whenever Java would refuse an archive: with Java, and with any jar's place, size
    /// or time.
    fn fingerprint(&self) -> String {
        let mut hash = Sha256::new();
        hash.update(format!("{}\n{}\n", self.java.display(), self.java_version));
        for jar in self.jars {
            let (bytes, seconds) = fs::metadata(jar).map_or((0, 0), |meta| {
                let age =
                    meta.modified().ok().and_then(|time| time.duration_since(UNIX_EPOCH).ok());
                (meta.len(), age.map_or(0, |age| age.as_secs()))
            });
            hash.update(format!("{} {bytes} {seconds}\n", jar.display()));
        }
        hash.finalize().iter().take(8).fold(String::new(), |mut hex, byte| {
            let _ = write!(hex, "{byte:02x}");
            hex
        })
    }

    fn archive(&self, dir: &Path) -> PathBuf {
        dir.join(format!("classes-{}.jsa", self.fingerprint()))
    }

    /// A note that no archive can be made, and why.
    fn note(&self, dir: &Path) -> PathBuf {
        dir.join(format!("classes-{}.failed", self.fingerprint()))
    }

    /// What `dir` has.
    pub(super) fn known(&self, dir: &Path) -> Known {
        let archive = self.archive(dir);
        if archive.is_file() {
            Known::Archive(archive)
        } else if self.note(dir).is_file() {
            Known::CannotBeMade
        } else {
            Known::Nothing
        }
    }

    /// Makes the archive in `dir`, or leaves a note there that it cannot be made. The caller
    /// holds the lock of `dir`.
    pub(super) fn make(&self, dir: &Path, progress: &mut dyn FnMut(&str)) -> Option<PathBuf> {
        progress("making an archive of Kafka's classes, once, so that brokers start faster");
        let archive = self.archive(dir);
        match self.train(dir, &archive) {
            Ok(()) => Some(archive),
            Err(reason) => {
                let note = self.note(dir);
                progress(&format!(
                    "brokers will start more slowly, as no archive of their classes could be made: \
                     {reason}. To have it tried again, remove {}",
                    note.display()
                ));
                // Where even this cannot be written, it is tried again next time.
                let _ = fs::write(note, reason);
                None
            }
        }
    }

    /// Formats a disk, runs one broker until it serves, and has Java write what it loaded.
    fn train(&self, dir: &Path, archive: &Path) -> Result<(), String> {
        let scratch = tempfile::Builder::new()
            .prefix("training-")
            .tempdir_in(dir)
            .map_err(|error| format!("cannot make a folder in {}: {error}", dir.display()))?;
        let at = scratch.path();
        let write = |name: &str, text: &str| {
            fs::write(at.join(name), text).map_err(|error| format!("cannot write {name}: {error}"))
        };
        write("server.properties", &properties(at))?;
        write("log4j2.properties", LOG_CONFIG)?;
        let mut format = self.java(at, &[]);
        format.args(["kafka.tools.StorageTool", "format", "-t", CLUSTER_ID, "-c"]);
        let formatted = bounded::output(format.arg(at.join("server.properties")), FORMAT_DEADLINE)?;
        if !formatted.status.success() {
            return Err(format!("formatting failed: {}", last_line(&formatted.stderr)));
        }
        let fresh = at.join("classes.jsa");
        let mut broker = self.broker(at, &fresh)?;
        let outcome = until_started(&mut broker, &at.join("broker.log")).and_then(|()| {
            kill(Pid::from_raw(broker.id().cast_signed()), Signal::SIGTERM)
                .map_err(|error| format!("the broker cannot be ended: {error}"))?;
            bounded::wait(&mut broker, DUMP_DEADLINE)
        });
        bounded::end(&mut broker);
        outcome?;
        fs::rename(&fresh, archive).map_err(|error| format!("Java left no archive: {error}"))
    }

    /// A broker in a network of its own, where its ports are free and nobody sees it, and which
    /// dies with the driver.
    fn broker(&self, at: &Path, archive: &Path) -> Result<Child, String> {
        let log = File::create(at.join("broker.log")).map_err(|error| error.to_string())?;
        let errors = log.try_clone().map_err(|error| error.to_string())?;
        let java = self.java(at, &[format!("-XX:ArchiveClassesAtExit={}", archive.display())]);
        let mut command = Command::new("unshare");
        if !nix::unistd::geteuid().is_root() {
            command.args(["--user", "--map-root-user"]);
        }
        // Each of these becomes the next, so that the child is the JVM in the end.
        command
            .args(["--net", "sh", "-c", "ip link set lo up && exec \"$@\"", "sh"])
            .args(["setpriv", "--pdeathsig", "KILL"])
            .arg(java.get_program())
            .args(java.get_args())
            .arg("kafka.Kafka")
            .arg(at.join("server.properties"))
            .stdin(Stdio::null())
            .stdout(log)
            .stderr(errors)
            .spawn()
            .map_err(|error| format!("`unshare` cannot be run: {error}"))
    }

    fn java(&self, at: &Path, flags: &[String]) -> Command {
        let mut command = Command::new(self.java);
        command
            .args(JVM)
            .args(HEAP)
            .args(flags)
            .arg(format!("-Djava.io.tmpdir={}", at.display()))
            .arg(format!("-Dlog4j2.configurationFile={}", at.join("log4j2.properties").display()))
            .args(["-cp", self.classpath]);
        command
    }
}

fn properties(at: &Path) -> String {
    format!(
        "process.roles=broker,controller\nnode.id=1\n\
         controller.quorum.voters=1@127.0.0.1:9093\ncontroller.listener.names=CONTROLLER\n\
         listeners=PLAINTEXT://127.0.0.1:9092,CONTROLLER://127.0.0.1:9093\n\
         log.cleaner.dedupe.buffer.size=8388608\nlog.dirs={}\n",
        at.join("data").display().to_string().replace('\\', "\\\\")
    )
}

fn until_started(broker: &mut Child, log: &Path) -> Result<(), String> {
    let begun = Instant::now();
    loop {
        let said = fs::read(log).unwrap_or_default();
        if String::from_utf8_lossy(&said).contains(STARTED) {
            return Ok(());
        }
        match broker.try_wait() {
            Ok(None) => {}
            Ok(Some(status)) => {
                return Err(format!("a broker ended with {status}: {}", last_line(&said)));
            }
            Err(error) => return Err(format!("a broker cannot be watched: {error}")),
        }
        if begun.elapsed() > START_DEADLINE {
            return Err(format!(
                "a broker was not up within {} s: {}",
                START_DEADLINE.as_secs(),
                last_line(&said)
            ));
        }
        thread::sleep(BETWEEN_LOOKS);
    }
}

fn last_line(said: &[u8]) -> String {
    let text = String::from_utf8_lossy(said);
    text.lines().rfind(|line| !line.trim().is_empty()).unwrap_or("it said nothing").to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn recipe<'a>(java: &'a Path, jars: &'a [PathBuf]) -> Recipe<'a> {
        Recipe { java, java_version: "17", jars, classpath: "none" }
    }

    #[test]
    fn the_fingerprint_follows_java_and_jars() {
        let dir = tempfile::tempdir().unwrap();
        let jars = [dir.path().join("a.jar"), dir.path().join("b.jar")];
        for jar in &jars {
            fs::write(jar, "jar").unwrap();
        }
        let java = Path::new("/usr/bin/java");
        let first = recipe(java, &jars).fingerprint();
        assert_eq!(first, recipe(java, &jars).fingerprint());
        assert_ne!(first, recipe(java, &jars[..1]).fingerprint());
        assert_ne!(first, recipe(Path::new("/opt/java"), &jars).fingerprint());
        fs::write(&jars[1], "another jar").unwrap();
        assert_ne!(first, recipe(java, &jars).fingerprint());
    }

    #[test]
    fn a_failure_is_told_with_its_reason_and_not_tried_again() {
        let dir = tempfile::tempdir().unwrap();
        let recipe = recipe(Path::new("/no/such/java"), &[]);
        let mut told = Vec::new();
        assert_eq!(recipe.known(dir.path()), Known::Nothing);
        assert_eq!(recipe.make(dir.path(), &mut |text| told.push(text.to_owned())), None);
        assert!(told[1].contains("/no/such/java") && told[1].contains(".failed"), "{told:?}");
        assert_eq!(recipe.known(dir.path()), Known::CannotBeMade);
        let left: Vec<_> = fs::read_dir(dir.path()).unwrap().collect();
        assert_eq!(left.len(), 1, "only the note stays: {left:?}");
    }
}
