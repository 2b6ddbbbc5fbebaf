//! What a partition knows of idempotent producers.
