//! What a run leaves for those who check it: exports, the program that reads them, reports.

use std::{
    path::Path,
    process::{Command, Output},
};

use anyhow::{Context as _, Result};
use proto::runner::v1::{ExportRunRequest, GetOversightReportRequest};
use serde_json::Value;
use tonic::Status;

use crate::{
    binaries,
    client::{Client, NAMESPACE},
    service::Kind,
};

impl Client {
    /// A run as one file's bytes.
    pub async fn export(&self, run_id: &str, with_blobs: bool) -> Result<Vec<u8>, Status> {
        let request = ExportRunRequest { namespace: NAMESPACE.to_owned(), run_id: run_id.to_owned(), with_blobs };
        let mut pieces = self.runner().export_run(request).await?.into_inner();
        let mut file = Vec::new();
        while let Some(piece) = pieces.message().await? {
            file.extend_from_slice(&piece.chunk);
        }
        Ok(file)
    }

    /// Who could intervene in a run, and who did.
    pub async fn oversight(&self, run_id: &str) -> Result<Value, Status> {
        let request = GetOversightReportRequest { namespace: NAMESPACE.to_owned(), run_id: run_id.to_owned() };
        let report = self.runner().get_oversight_report(request).await?.into_inner();
        serde_json::from_str(&report.report_json).map_err(|cause| Status::internal(cause.to_string()))
    }
}

/// Runs a command of the runner's program to its end.
pub fn runner_command(arguments: &[&str]) -> Result<Output> {
    let program = binaries::directory()?.join(Kind::Runner.program());
    Command::new(&program).args(arguments).output().with_context(|| format!("cannot start {}", program.display()))
}

/// Checks an exported file; whether it is clean, and the report.
pub fn verify(file: &Path, more: &[&str]) -> Result<(i32, Value)> {
    let path = file.display().to_string();
    let arguments: Vec<&str> = ["verify", "--json", &path].into_iter().chain(more.iter().copied()).collect();
    let output = runner_command(&arguments)?;
    let code = output.status.code().context("it was ended by a signal")?;
    let report = serde_json::from_slice(&output.stdout)
        .with_context(|| format!("no report: {}", String::from_utf8_lossy(&output.stderr)))?;
    Ok((code, report))
}
