//! What runs take of disk and memory: a long chain, and large results. Measured here for the tests and for the bench alike.

use std::{fmt, fs, os::unix::fs::MetadataExt as _, path::Path};

use anyhow::{Context as _, Result, ensure};
use proto::{
    runner::v1::RunStatus,
    tool::v1::{ExecuteToolRequest, ExecuteToolResponse, execute_tool_response::Outcome},
};
use serde_json::json;

use crate::{
    document::{Definition, Plan},
    host_tool::HostTool,
    stack::Stack,
};

/// Nodes of the chain.
pub const CHAIN: u64 = 1000;
/// Most that the chain's journal may take, in bytes of its records.
pub const CHAIN_BYTES_MAX: u64 = 2_000_000;
/// Most memory that the runner may hold while it verifies the chain, in bytes.
pub const VERIFY_BYTES_MAX: u64 = 100_000_000;
/// Nodes with a large result.
pub const LARGE: u64 = 100;
/// What each of them gives, in bytes.
pub const LARGE_BYTES: u64 = 100_000;
/// How many times the large results may stand on the disk.
pub const LARGE_TIMES_MAX: u64 = 3;

/// What a chain of [`CHAIN`] nodes takes, in bytes.
#[derive(Debug, Clone, Copy)]
pub struct Chain {
    /// Its journal, as the run counts it.
    pub journal: u64,
    /// What the store's files have grown by, with room that is kept for what comes next.
    pub on_disk: u64,
    /// The most memory of the runner during its verification.
    pub verify: u64,
}

/// What [`LARGE`] results of [`LARGE_BYTES`] take.
#[derive(Debug, Clone, Copy)]
pub struct Large {
    /// What the data directory has grown by, in bytes.
    pub on_disk: u64,
}

impl Chain {
    /// Runs the chain and verifies it.
    pub async fn measure() -> Result<Self> {
        let (mut stack, _tool) = stack(|_| "{\"done\":true}".to_owned()).await?;
        let client = stack.client();
        let work = client.put_definition(&Definition::tool("work")).await?;
        let names: Vec<String> = (0..CHAIN).map(|number| format!("n{number}")).collect();
        let plan = client.put_plan(&Plan::chain(names.iter().map(|name| (name.as_str(), work.as_str())))).await?;
        let store = stack.data().join("journal");
        let before = taken(&store)?;
        let run = client.run("chain", &plan, &json!({})).await?;
        ensure!(run.status() == RunStatus::Completed, "{}", run.reason);
        let on_disk = taken(&store)?.saturating_sub(before);
        let pid = stack.runner.process().pid();
        peak_of(pid)?;
        ensure!(client.verify("chain").await?.clean, "the chain is not clean");
        Ok(Self { journal: run.spent.context("nothing is spent")?.storage_bytes, on_disk, verify: peak_of(pid)? })
    }

    /// Whether it is as small as it has to be.
    #[must_use]
    pub const fn is_small(&self) -> bool {
        self.journal < CHAIN_BYTES_MAX && self.verify < VERIFY_BYTES_MAX
    }
}

impl Large {
    /// Runs a chain of nodes with large results.
    pub async fn measure() -> Result<Self> {
        let large = "x".repeat(usize::try_from(LARGE_BYTES)?);
        let (stack, _tool) = stack(move |request| json!({&request.tool_name: large}).to_string()).await?;
        let client = stack.client();
        let mut steps = Vec::new();
        for number in 0..LARGE {
            let name = format!("n{number}");
            let hash = client.put_definition(&Definition::tool(&name)).await?;
            steps.push((name, hash));
        }
        let plan = Plan::chain(steps.iter().map(|(name, hash)| (name.as_str(), hash.as_str())));
        let plan = client.put_plan(&plan).await?;
        let before = taken(&stack.data())?;
        let run = client.run("large", &plan, &json!({})).await?;
        ensure!(run.status() == RunStatus::Completed, "{}", run.reason);
        Ok(Self { on_disk: taken(&stack.data())?.saturating_sub(before) })
    }

    /// Whether it is as small as it has to be.
    #[must_use]
    pub const fn is_small(&self) -> bool {
        self.on_disk < LARGE_TIMES_MAX * LARGE * LARGE_BYTES
    }
}

impl fmt::Display for Chain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { journal, on_disk, verify } = self;
        let a_node = journal / CHAIN;
        writeln!(
            f,
            "a chain of {CHAIN} nodes: {journal} bytes of journal, {a_node} a node (target < {CHAIN_BYTES_MAX})"
        )?;
        writeln!(f, "the store's files beneath it: {on_disk} bytes more, with room that the next runs use")?;
        write!(f, "its verification: the process held at most {verify} bytes (target < {VERIFY_BYTES_MAX})")
    }
}

impl fmt::Display for Large {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let times = self.on_disk as f64 / (LARGE * LARGE_BYTES) as f64;
        write!(
            f,
            "{LARGE} results of {LARGE_BYTES} bytes: {times:.2} × the data on the disk (target < {LARGE_TIMES_MAX})"
        )
    }
}

async fn stack(answer: impl Fn(&ExecuteToolRequest) -> String + Send + Sync + 'static) -> Result<(Stack, HostTool)> {
    let outcome = move |request: &ExecuteToolRequest| Some(Outcome::OutputJson(answer(request)));
    let tool = HostTool::start(move |request| Ok(ExecuteToolResponse { outcome: outcome(request) })).await?;
    let url = tool.url();
    Ok((Stack::builder()?.runner(|flags| flags.tool_url(&url)).start().await?, tool))
}

/// Bytes that a folder's files take on the disk.
fn taken(folder: &Path) -> Result<u64> {
    let mut bytes = 0;
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        // A file that goes away meanwhile takes nothing.
        bytes += if path.is_dir() { taken(&path)? } else { fs::metadata(&path).map_or(0, |file| file.blocks() * 512) };
    }
    Ok(bytes)
}

/// The most memory that a process has held since this was last called, in bytes.
fn peak_of(pid: u32) -> Result<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).context("no VmHWM")?;
    fs::write(format!("/proc/{pid}/clear_refs"), "5")?;
    Ok(line.trim().trim_end_matches(" kB").parse::<u64>()? * 1024)
}
