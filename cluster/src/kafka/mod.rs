//! Stock Apache Kafka as a system, in KRaft mode.

mod archive;
mod bounded;
mod cache;
mod config;
mod defaults;
mod distribution;
mod java;
mod kraft;

pub use defaults::{Default as SettingDefault, FAULT_FRIENDLY};
pub use distribution::{Distribution, DistributionError};
pub use java::java_for;
pub use kraft::Kafka;

/// The newest version that is known to run on Java 17.
pub const DEFAULT_VERSION: &str = "4.4.0";
