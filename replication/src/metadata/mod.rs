//! What the metadata log says: records, and the image that they make.
