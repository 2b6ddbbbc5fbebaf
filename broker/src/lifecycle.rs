//! A broker's life as its controller sees it: registered, heard of, fenced or not, let go.

use std::sync::Arc;
use std::time::Duration;

use kafka_protocol::ResponseError;
use kafka_protocol::error::ParseResponseErrorCode;
use kafka_protocol::messages::broker_registration_request::Listener;
use kafka_protocol::messages::{
    BrokerHeartbeatRequest, BrokerHeartbeatResponse, BrokerId, BrokerRegistrationRequest,
};
use kafka_protocol::protocol::StrBytes;
use replication::types::BrokerEpoch;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout};
use tracing::{debug, info, warn};
use uuid::Uuid;

use crate::config::Config;
use crate::net::controllers::Controllers;

const REGISTRATION_VERSION: i16 = 3;
const HEARTBEAT_VERSION: i16 = 1;
/// Between two attempts to be heard, and between heartbeats while fenced: a broker that has
/// caught up shall serve at once.
const SOON: Duration = Duration::from_millis(50);

/// Where a broker is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Not registered yet.
    Starting,
    /// Registered, and not to serve: it has not caught up with the metadata, or was not heard of.
    Fenced,
    /// Serves.
    Serving,
    /// Asked to be let go.
    Leaving,
    /// Let go: it leads nothing.
    Gone,
}

/// What a broker's life needs.
#[derive(Debug)]
pub struct Lifecycle {
    /// Of the node.
    pub config: Arc<Config>,
    /// Who is told.
    pub controllers: Arc<Controllers>,
    /// How far this node has read the metadata, and done what it says.
    pub applied: watch::Receiver<i64>,
    /// Told the broker's epoch.
    pub epoch: watch::Sender<BrokerEpoch>,
    /// Told the stage.
    pub stage: watch::Sender<Stage>,
    /// The epoch of the life before, if that ended cleanly (KIP-966).
    pub previous_epoch: BrokerEpoch,
    /// Turns true when the broker wants to be let go.
    pub leave: watch::Receiver<bool>,
}

impl Lifecycle {
    /// Registers and sends heartbeats until let go.
    pub async fn run(mut self) {
        let incarnation = Uuid::new_v4();
        loop {
            let epoch = self.register(incarnation).await;
            self.epoch.send_replace(epoch);
            self.stage.send_replace(Stage::Fenced);
            info!(broker_epoch = epoch.0, "registered");
            if self.heartbeats(epoch).await == End::Gone {
                self.stage.send_replace(Stage::Gone);
                return;
            }
        }
    }

    async fn register(&self, incarnation: Uuid) -> BrokerEpoch {
        let request = self.registration(incarnation);
        let limit = self.config.times.controller_request.min(Duration::from_secs(2));
        let mut told = String::new();
        loop {
            let problem = match self.controllers.ask(REGISTRATION_VERSION, &request, limit).await {
                Ok(response) => match response.error_code.err() {
                    None => return BrokerEpoch(response.broker_epoch),
                    Some(error) => format!("{error:?}"),
                },
                Err(error) => error.to_string(),
            };
            if problem != told {
                info!(problem, "not registered yet");
                told = problem;
            }
            sleep(SOON).await;
        }
    }

    fn registration(&self, incarnation: Uuid) -> BrokerRegistrationRequest {
        let listeners = self.config.broker_listeners().map(|listener| {
            Listener::default()
                .with_name(StrBytes::from_string(listener.name.clone()))
                .with_host(StrBytes::from_string(listener.address.host.clone()))
                .with_port(listener.address.port)
                .with_security_protocol(0)
        });
        BrokerRegistrationRequest::default()
            .with_broker_id(BrokerId(self.config.node.0))
            .with_cluster_id(StrBytes::from_string(self.config.cluster_id.clone()))
            .with_incarnation_id(incarnation)
            .with_listeners(listeners.collect())
            .with_previous_broker_epoch(self.previous_epoch.0)
    }

    async fn heartbeats(&mut self, epoch: BrokerEpoch) -> End {
        let interval = self.config.times.heartbeat;
        loop {
            let begun = Instant::now();
            let leaving = *self.leave.borrow();
            let request = BrokerHeartbeatRequest::default()
                .with_broker_id(BrokerId(self.config.node.0))
                .with_broker_epoch(epoch.0)
                .with_current_metadata_offset(*self.applied.borrow())
                .with_want_fence(false)
                .with_want_shut_down(leaving);
            // An answer that takes longer than the time between two is of no use.
            let limit = interval.max(SOON * 4);
            let next = match self.controllers.ask(HEARTBEAT_VERSION, &request, limit).await {
                Ok(response) => match self.heard(&response, leaving) {
                    Ok(next) => next,
                    Err(end) => return end,
                },
                Err(error) => {
                    debug!(%error, "the controller was not reached");
                    SOON
                }
            };
            let leave = &mut self.leave;
            let wait = next.saturating_sub(begun.elapsed()).max(SOON / 5);
            let woken = async {
                if leaving || leave.wait_for(|leave| *leave).await.is_err() {
                    std::future::pending::<()>().await;
                }
            };
            // Whoever wants to leave says so at once.
            let _ = timeout(wait, woken).await;
        }
    }

    /// How long to wait for the next heartbeat.
    fn heard(&self, response: &BrokerHeartbeatResponse, leaving: bool) -> Result<Duration, End> {
        match response.error_code.err() {
            None => {}
            Some(ResponseError::StaleBrokerEpoch | ResponseError::BrokerIdNotRegistered) => {
                warn!("the controller does not know this broker any more");
                return Err(End::Unknown);
            }
            Some(error) => {
                debug!(?error, "the heartbeat was refused");
                return Ok(SOON);
            }
        }
        if leaving && response.should_shut_down {
            return Err(End::Gone);
        }
        let stage = match (leaving, response.is_fenced) {
            (true, _) => Stage::Leaving,
            (false, true) => Stage::Fenced,
            (false, false) => Stage::Serving,
        };
        let was = self.stage.send_replace(stage);
        if was != stage {
            info!(?was, now = ?stage, "the controller says");
        }
        Ok(if stage == Stage::Serving { self.config.times.heartbeat } else { SOON })
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// Let go.
    Gone,
    /// To be registered anew.
    Unknown,
}
