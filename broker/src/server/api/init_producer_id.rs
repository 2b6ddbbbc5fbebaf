//! InitProducerId: an id for an idempotent producer.

use std::sync::Arc;

use kafka_protocol::ResponseError;
use kafka_protocol::messages::{InitProducerIdRequest, InitProducerIdResponse, ProducerId};
use tracing::debug;

use crate::server::dispatch::Arrived;
use crate::server::services::Services;

/// Answers. A producer without transactions gets a new id whatever it had before (KIP-360).
pub(in crate::server) async fn handle(
    request: InitProducerIdRequest,
    _arrived: &Arrived,
    services: &Arc<Services>,
) -> InitProducerIdResponse {
    let refused = |error: ResponseError| {
        InitProducerIdResponse::default()
            .with_error_code(error.code())
            .with_producer_id(ProducerId(-1))
            .with_producer_epoch(-1)
    };
    if request.transactional_id.is_some() {
        return refused(ResponseError::TransactionalIdAuthorizationFailed);
    }
    match services.producer_ids.next().await {
        Ok(id) => InitProducerIdResponse::default()
            .with_producer_id(ProducerId(id))
            .with_producer_epoch(0),
        Err(error) => {
            debug!(%error, "no producer id to give");
            refused(ResponseError::CoordinatorLoadInProgress)
        }
    }
}
