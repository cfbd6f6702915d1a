//! `ImportBundle` and `ExportBundle`: not in this release.

use proto::{
    fault::{Fault, Reason},
    runner::v1::{ExportBundleRequest, ImportBundleRequest, ImportBundleResponse},
};
use tonic::{Request, Streaming};

use super::{Answers, CatalogApi, ExportBundleResponse};

/// Refuses by name.
pub fn import(
    api: &CatalogApi,
    request: &Request<Streaming<ImportBundleRequest>>,
) -> Result<ImportBundleResponse, Fault> {
    api.caller(request)?;
    Err(missing("ImportBundle", "store its grains one by one with PutGrain and its blobs with PutBlob"))
}

/// Refuses by name.
pub fn export(
    api: &CatalogApi,
    request: &Request<ExportBundleRequest>,
) -> Result<Answers<ExportBundleResponse>, Fault> {
    api.caller(request)?;
    Err(missing("ExportBundle", "read grains one by one with GetGrain and blobs with GetBlob"))
}

fn missing(rpc: &str, instead: &str) -> Fault {
    let text = format!("{rpc} is not in this release, bundle files (.mgb) are neither read nor written: {instead}");
    Fault::new(Reason::NotImplemented, text).with("rpc", rpc)
}
