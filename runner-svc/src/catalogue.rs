//! What plans are made of: grains and blobs, both immutable and addressed by their SHA-256.

pub mod grain;
