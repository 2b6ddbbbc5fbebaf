//! The metadata log: openraft on disk.
