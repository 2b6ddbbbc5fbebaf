//! How the program ends: the one place where exit codes are decided.

use std::fmt;
use std::process::ExitCode;

use checkers::Validity;
use cluster::BackendError;

/// The codes that scripts rely on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    /// Everything that was checked holds; or the command did what was asked.
    Valid = 0,
    /// An anomaly that must not be was found.
    Invalid = 1,
    /// Too little happened to judge, or the run was cut short.
    Unknown = 2,
    /// The command line makes no sense.
    Usage = 64,
    /// A file that was to be read is broken.
    BadData = 65,
    /// The cluster cannot be brought up here.
    Unavailable = 69,
    /// The rig itself failed.
    Internal = 70,
}

impl From<Validity> for Exit {
    fn from(validity: Validity) -> Self {
        match validity {
            Validity::True => Self::Valid,
            Validity::False => Self::Invalid,
            Validity::Unknown => Self::Unknown,
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit as u8)
    }
}

/// An error with the exit code that belongs to it.
#[derive(Debug)]
pub(crate) struct Failure {
    /// How the program ends.
    pub(crate) exit: Exit,
    /// What the user reads.
    pub(crate) message: String,
}

impl Failure {
    /// The command line asks for something that cannot be.
    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Self { exit: Exit::Usage, message: message.into() }
    }

    /// Input that cannot be read as what it should be.
    pub(crate) fn bad_data(message: impl Into<String>) -> Self {
        Self { exit: Exit::BadData, message: message.into() }
    }

    /// This machine or the cluster is not up to it.
    pub(crate) fn unavailable(message: impl Into<String>) -> Self {
        Self { exit: Exit::Unavailable, message: message.into() }
    }

    /// The rig failed.
    pub(crate) fn internal(message: impl Into<String>) -> Self {
        Self { exit: Exit::Internal, message: message.into() }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl From<anyhow::Error> for Failure {
    fn from(error: anyhow::Error) -> Self {
        Self::internal(format!("{error:#}"))
    }
}

impl From<BackendError> for Failure {
    fn from(error: BackendError) -> Self {
        Self::unavailable(error.to_string())
    }
}
