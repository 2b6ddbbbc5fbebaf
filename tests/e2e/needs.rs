//! What a case needs of the machine, and what happens where it is missing.

use std::process::{Command, Stdio};
use std::sync::OnceLock;

use libtest_mimic::{Failed, Trial};

/// Something that a machine has or lacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Need {
    /// Java and Kafka's jars.
    Kafka,
    /// kcat, a client of librdkafka's.
    Kcat,
    /// A Docker engine that answers, with the image of Kafka.
    Docker,
    /// User namespaces, or root.
    Namespaces,
    /// Root.
    Root,
}

impl Need {
    const fn name(self) -> &'static str {
        match self {
            Self::Kafka => "kafka",
            Self::Kcat => "kcat",
            Self::Docker => "docker",
            Self::Namespaces => "namespaces",
            Self::Root => "root",
        }
    }

    /// Why it is missing and what to do; `None` where it is there. Looked at once.
    fn missing(self) -> Option<&'static str> {
        static SEEN: [OnceLock<Option<String>>; 5] = [const { OnceLock::new() }; 5];
        SEEN[self as usize]
            .get_or_init(|| match self {
                Self::Kafka => (!works("java", &["-version"]) || !works("mvn", &["--version"]))
                    .then(|| "Java 17 and Maven are needed; apt-get install openjdk-17-jre-headless maven".into()),
                Self::Kcat => (!works("kcat", &["-V"]))
                    .then(|| "kcat is needed; apt-get install kcat".into()),
                Self::Docker => said("docker"),
                Self::Namespaces => said("namespaces"),
                Self::Root => (!works("sh", &["-c", "[ $(id -u) = 0 ]"]))
                    .then(|| "the test must run as root".into()),
            })
            .as_deref()
    }

    fn is_required(self) -> bool {
        std::env::var("HIGHWATER_REQUIRE")
            .is_ok_and(|list| list.split(',').any(|name| name.trim() == self.name()))
    }
}

fn works(program: &str, arguments: &[&str]) -> bool {
    Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .is_ok_and(|output| output.status.success())
}

/// What the program itself says of a backend: its own check is the one to trust.
fn said(backend: &str) -> Option<String> {
    let output =
        Command::new(crate::driver::PROGRAM).arg("nemeses").output().expect("the program runs");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let line = text.lines().find(|line| line.starts_with(backend)).unwrap_or("no word of it");
    (!line.ends_with(" yes")).then(|| line.to_owned())
}

/// A trial that is shown as ignored, or fails, where something is missing.
pub(crate) fn trial(name: &str, needs: &[Need], case: impl FnOnce() + Send + 'static) -> Trial {
    let missing = needs.iter().find_map(|need| Some((*need, need.missing()?)));
    let Some((need, reason)) = missing else {
        return Trial::test(name.to_owned(), move || {
            case();
            Ok(())
        });
    };
    if need.is_required() {
        let reason = format!("{} is required: {reason}", need.name());
        return Trial::test(name.to_owned(), move || Err(Failed::from(reason)));
    }
    eprintln!("not run: {name}: {reason}");
    Trial::test(name.to_owned(), || Ok(())).with_ignored_flag(true)
}
