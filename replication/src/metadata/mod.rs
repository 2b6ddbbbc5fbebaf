//! What the metadata log says: records, and the image that they make.
//!
//! | subject | module |
//! |---|---|
//! | what stands in the log | [`record`] |
//! | what it adds up to | [`image`] |
//! | settings that topics and brokers may override | [`settings`] |

pub mod image;
pub mod record;
pub mod settings;

pub use image::{Broker, Image, PartitionState, Refused, Topic};
pub use record::{BrokerRegistration, Listener, PartitionChange, Record, Resource};
