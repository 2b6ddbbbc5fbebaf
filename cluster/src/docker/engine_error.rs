//! Why an engine did not do what it was asked.

use thiserror::Error;

use crate::backend::BackendError;

/// Why the engine did not do what it was asked.
#[derive(Debug, Error)]
pub enum EngineError {
    /// Nobody listens, or not to us.
    #[error("no engine answers at {socket}: {reason}. {remedy}")]
    Unreachable {
        /// Path of the socket.
        socket: String,
        /// What the operating system said.
        reason: String,
        /// What to do, a full sentence.
        remedy: String,
    },
    /// It answers, but cannot be used.
    #[error("{reason}. {remedy}")]
    Unsuitable {
        /// What is wrong with it.
        reason: String,
        /// What to do, a full sentence.
        remedy: String,
    },
    /// It said no.
    #[error("{request}: the engine says ({status}): {message}")]
    Refused {
        /// Method and path.
        request: String,
        /// HTTP status; 0 where the engine failed after it had begun to answer.
        status: u16,
        /// Its words.
        message: String,
    },
    /// It was silent.
    #[error("{request}: no answer from the engine within {waited_ms} ms")]
    Deadline {
        /// Method and path.
        request: String,
        /// For how long it was waited.
        waited_ms: u128,
    },
    /// The connection broke, or the answer is none.
    #[error("{request}: {reason}")]
    Broken {
        /// Method and path.
        request: String,
        /// What went wrong.
        reason: String,
    },
}

impl EngineError {
    /// HTTP status of a refusal.
    pub const fn status(&self) -> Option<u16> {
        match self {
            Self::Refused { status, .. } => Some(*status),
            _ => None,
        }
    }
}

impl From<EngineError> for BackendError {
    fn from(error: EngineError) -> Self {
        match error {
            EngineError::Unreachable { socket, reason, remedy } => Self::Unsupported {
                backend: "docker",
                reason: format!("no engine answers at {socket}: {reason}"),
                remedy,
            },
            EngineError::Unsuitable { reason, remedy } => {
                Self::Unsupported { backend: "docker", reason, remedy }
            }
            EngineError::Refused { request, status, message } => Self::Failed {
                context: format!("the engine refused {request}"),
                reason: format!("{message} (status {status})"),
            },
            other => Self::Failed {
                context: "cannot talk to the Docker engine".into(),
                reason: other.to_string(),
            },
        }
    }
}
