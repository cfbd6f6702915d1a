//! The services' wire: messages, services and their descriptors, and what every service shares of serving and dialing.

/// Errors' registry.
pub mod error {
    /// Package `areev.error.v1`.
    #[allow(missing_docs, clippy::all, clippy::pedantic)]
    pub mod v1 {
        tonic::include_proto!("areev.error.v1");
    }
}

/// The runner's messages and services.
pub mod runner {
    /// Package `areev.runner.v1`.
    #[allow(missing_docs, clippy::all, clippy::pedantic)]
    pub mod v1 {
        tonic::include_proto!("areev.runner.v1");
    }
}

/// The sandbox's messages and service.
pub mod sandbox {
    /// Package `areev.sandbox.v1`.
    #[allow(missing_docs, clippy::all, clippy::pedantic)]
    pub mod v1 {
        tonic::include_proto!("areev.sandbox.v1");
    }
}

/// The broker's messages and service.
pub mod broker {
    /// Package `areev.broker.v1`.
    #[allow(missing_docs, clippy::all, clippy::pedantic)]
    pub mod v1 {
        tonic::include_proto!("areev.broker.v1");
    }
}

/// The service that users implement to execute host tools.
pub mod tool {
    /// Package `areev.tool.v1`.
    #[allow(missing_docs, clippy::all, clippy::pedantic)]
    pub mod v1 {
        tonic::include_proto!("areev.tool.v1");
    }
}

pub mod admin;
pub mod dial;
mod door;
pub mod fault;
pub mod files;
pub mod identity;
pub mod memory;
pub mod open_files;
pub mod output;
pub mod serve;
pub mod settings;
pub mod telemetry;
pub mod tls;

/// The descriptors of every package, comments included, for reflection.
pub const DESCRIPTORS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/descriptors.bin"));
