//! RPCs that are described and not in this release.

use proto::fault::{Fault, Reason};
use tonic::Request;

use super::RunnerApi;

/// Refuses by name, a known caller only.
pub fn refuse<T, R>(api: &RunnerApi, request: &Request<T>, rpc: &str) -> Result<R, Fault> {
    api.parts.access.principal(request.extensions(), request.metadata())?;
    Err(Fault::new(Reason::NotImplemented, format!("{rpc} is not in this release")).with("rpc", rpc))
}
