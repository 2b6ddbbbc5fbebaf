//! Connections to other nodes, kept while idle.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use crate::net::connection::{AskError, Connection};

/// Idle connections kept for one address.
const MOST_IDLE: usize = 4;
/// A connection takes no longer than this share of a question's limit.
const CONNECT_SHARE: u32 = 2;

/// Keeps connections between questions. Each question has a connection to itself, so a slow
/// answer holds nobody up.
#[derive(Debug, Default)]
pub struct Peers {
    idle: Mutex<HashMap<String, Vec<Connection>>>,
}

impl Peers {
    /// A connection to `address`, for one question: an idle one, or a new one within half of
    /// `limit`. Give it back if the question was answered.
    ///
    /// An idle connection may have been closed by the other side since: if the question fails on
    /// one, it is the caller's to ask again.
    ///
    /// # Errors
    /// [`AskError::Unreachable`].
    pub async fn connection(&self, address: &str, limit: Duration) -> Result<Connection, AskError> {
        match self.take(address) {
            Some(connection) => Ok(connection),
            None => Connection::open(address, limit / CONNECT_SHARE).await,
        }
    }

    /// Gives `connection` back after a question whose answer was `answer`.
    pub fn done<T>(&self, connection: Connection, answer: &Result<T, AskError>) {
        match answer {
            Ok(_) => self.give_back(connection),
            // Others to the same place have probably broken as well.
            Err(_) => self.forget(connection.address()),
        }
    }

    fn take(&self, address: &str) -> Option<Connection> {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        idle.get_mut(address)?.pop()
    }

    fn give_back(&self, connection: Connection) {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        let kept = idle.entry(connection.address().to_owned()).or_default();
        if kept.len() < MOST_IDLE {
            kept.push(connection);
        }
    }

    fn forget(&self, address: &str) {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).remove(address);
    }
}
