//! Kafka's protocol as bytes.
