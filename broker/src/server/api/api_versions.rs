//! ApiVersions: what is spoken here.

use std::sync::Arc;

use kafka_protocol::ResponseError;
use kafka_protocol::messages::api_versions_response::ApiVersion;
use kafka_protocol::messages::{ApiKey, ApiVersionsRequest, ApiVersionsResponse};

use crate::server::dispatch::{Answer, Arrived, encode};
use crate::server::services::Services;
use crate::server::versions::{self, Audience};
use crate::wire::header::Header;

/// Answers.
pub(in crate::server) async fn handle(
    _request: ApiVersionsRequest,
    arrived: &Arrived,
    _services: &Arc<Services>,
) -> ApiVersionsResponse {
    spoken(arrived.origin.audience)
}

fn spoken(audience: Audience) -> ApiVersionsResponse {
    let keys = versions::spoken(audience).map(|spoken| {
        // Clients that do not find version 0 believe that nothing may be compressed.
        let min = if spoken.key == ApiKey::Produce { 0 } else { spoken.min };
        ApiVersion::default()
            .with_api_key(spoken.key as i16)
            .with_min_version(min)
            .with_max_version(spoken.max)
    });
    ApiVersionsResponse::default().with_api_keys(keys.collect())
}

/// A version that is not spoken is answered in version 0, so that anyone can read it.
pub(in crate::server) fn unsupported(header: &Header) -> anyhow::Result<Answer> {
    let mut response =
        spoken(Audience::Clients).with_error_code(ResponseError::UnsupportedVersion.code());
    response.api_keys.retain(|key| key.api_key == ApiKey::ApiVersions as i16);
    let oldest = Header { api_version: 0, ..header.clone() };
    encode(&oldest, &response)
}
