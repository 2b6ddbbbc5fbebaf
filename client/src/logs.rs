//! librdkafka's log lines and global errors, as tracing events of target `librdkafka`.

use rdkafka::config::RDKafkaLogLevel;
use rdkafka::error::{KafkaError, RDKafkaErrorCode};

/// Forwards one log line.
pub(crate) fn line(level: RDKafkaLogLevel, facility: &str, text: &str) {
    match level {
        RDKafkaLogLevel::Emerg
        | RDKafkaLogLevel::Alert
        | RDKafkaLogLevel::Critical
        | RDKafkaLogLevel::Error => tracing::error!(target: "librdkafka", facility, "{text}"),
        RDKafkaLogLevel::Warning => tracing::warn!(target: "librdkafka", facility, "{text}"),
        RDKafkaLogLevel::Notice | RDKafkaLogLevel::Info => {
            tracing::info!(target: "librdkafka", facility, "{text}");
        }
        RDKafkaLogLevel::Debug => tracing::debug!(target: "librdkafka", facility, "{text}"),
    }
}

/// Forwards a global error. librdkafka gets over most of them by itself.
pub(crate) fn error(error: &KafkaError, reason: &str) {
    // The end of a partition is passed off as an error, many times a second.
    if error.rdkafka_error_code() == Some(RDKafkaErrorCode::PartitionEOF) {
        tracing::trace!(target: "librdkafka", %error, "{reason}");
    } else {
        tracing::info!(target: "librdkafka", %error, "{reason}");
    }
}

/// librdkafka's logs and errors, of a client whose context is `$context`.
macro_rules! forwards_logs {
    ($context:ty) => {
        impl rdkafka::ClientContext for $context {
            fn log(&self, level: rdkafka::config::RDKafkaLogLevel, facility: &str, text: &str) {
                $crate::logs::line(level, facility, text);
            }

            fn error(&self, error: rdkafka::error::KafkaError, reason: &str) {
                $crate::logs::error(&error, reason);
            }
        }
    };
}

pub(crate) use forwards_logs;
