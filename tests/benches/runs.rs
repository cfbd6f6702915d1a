//! What one run costs when ten thousand came before it, what a start of the runner costs then, and what one durable step costs.
//! Prints numbers; asserts nothing.
//!
//! `cargo bench -p e2e` runs it; `AREEV_BENCH_RUNS` changes the ten thousand.

#![expect(clippy::print_stdout, reason = "a bench prints what it measured")]

use std::{
    io::Write as _,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};
use e2e::{
    client::Client,
    document::{Definition, Plan},
    guests,
    stack::Stack,
};
use proto::runner::v1::RunStatus;
use serde_json::json;

/// Runs before the one that is measured.
const RUNS: usize = 10_000;
/// Runs whose median stands for one.
const SAMPLE: usize = 200;
/// Runs in flight while the ten thousand are made.
const IN_FLIGHT: usize = 32;
/// Nodes of the plan whose steps are measured.
const STEPS: usize = 50;
/// Appends that the disk's own floor is measured with.
const APPENDS: usize = 500;
/// Bytes of one append.
const APPEND_BYTES: usize = 1024;

/// Starts whose median stands for one.
const RESTARTS: usize = 5;
/// What the services log.
const LOG: &str = "warn,proto=info";

fn main() -> Result<()> {
    tokio::runtime::Builder::new_multi_thread().enable_all().build().context("a runtime")?.block_on(bench())
}

async fn bench() -> Result<()> {
    let runs = std::env::var("AREEV_BENCH_RUNS").map_or(Ok(RUNS), |text| text.parse()).context("AREEV_BENCH_RUNS")?;
    let module = guests::echo();
    // As much as the harness needs to find the services, which do not write down every step here.
    let builder = Stack::builder()?.pin(&module).sandbox().all(|flags| flags.variable("RUST_LOG", LOG));
    let mut stack = builder.start().await?;
    restarted(&mut stack, "an empty store").await?;
    let client = stack.client();
    let uri = client.put_blob(&module).await?;
    let hash = client.put_definition(&Definition::pure("work", &uri)).await?;
    let one = client.put_plan(&Plan::work(&hash)).await?;

    let first = sample(&client, &one, "first").await?;
    println!("first {SAMPLE} runs         median {first:>9.3?}");
    let began = Instant::now();
    many(&client, &one, runs).await?;
    let rate = runs as f64 / began.elapsed().as_secs_f64();
    println!("{runs} runs, {IN_FLIGHT} in flight   {rate:>9.0} a second");
    let last = sample(&client, &one, "last").await?;
    println!("the {SAMPLE} after them    median {last:>9.3?}");
    println!("ratio                      {:>9.2}", last.as_secs_f64() / first.as_secs_f64());
    restarted(&mut stack, &format!("{runs} finished runs")).await?;
    let client = stack.client();

    let steps: Vec<String> = (0..STEPS).map(|number| format!("n{number}")).collect();
    let chain = client.put_plan(&Plan::chain(steps.iter().map(|node| (node.as_str(), hash.as_str())))).await?;
    let mut times = Vec::new();
    for number in 0..20 {
        let began = Instant::now();
        completed(&client, &format!("chain-{number}"), &chain).await?;
        times.push(began.elapsed() / u32::try_from(STEPS)?);
    }
    let (step, floor) = (median(times), floor(&stack)?);
    println!("one durable step    median {step:>9.3?}   floor of the disk (append, fdatasync) {floor:.3?}");
    Ok(())
}

/// What a start costs, until the health check says that the runner serves.
async fn restarted(stack: &mut Stack, on: &str) -> Result<()> {
    let mut times = Vec::with_capacity(RESTARTS);
    for _ in 0..RESTARTS {
        stack.runner.process().terminate()?;
        let began = Instant::now();
        stack.runner.restart().await?;
        times.push(began.elapsed());
    }
    let bytes = std::fs::metadata(stack.data().join("journal/db"))?.len();
    println!("start on {on:<22} {:>9.3?}   its file has {} MiB", median(times), bytes >> 20);
    Ok(())
}

async fn many(client: &Client, plan: &str, runs: usize) -> Result<()> {
    let mut workers = tokio::task::JoinSet::new();
    for worker in 0..IN_FLIGHT {
        let (client, plan) = (client.clone(), plan.to_owned());
        workers.spawn(async move {
            for number in (worker..runs).step_by(IN_FLIGHT) {
                completed(&client, &format!("many-{number}"), &plan).await?;
            }
            anyhow::Ok(())
        });
    }
    while let Some(ended) = workers.join_next().await {
        ended.context("a worker")??;
    }
    Ok(())
}

async fn sample(client: &Client, plan: &str, name: &str) -> Result<Duration> {
    let mut times = Vec::with_capacity(SAMPLE);
    for number in 0..SAMPLE {
        let began = Instant::now();
        completed(client, &format!("{name}-{number}"), plan).await?;
        times.push(began.elapsed());
    }
    Ok(median(times))
}

async fn completed(client: &Client, run_id: &str, plan: &str) -> Result<()> {
    let run = client.run(run_id, plan, &json!({"q": 7})).await?;
    ensure!(run.status() == RunStatus::Completed, "{run_id}: {}", run.reason);
    Ok(())
}

/// What an append of 1 KiB and its fdatasync cost here.
fn floor(stack: &Stack) -> Result<Duration> {
    let mut file = std::fs::File::create(stack.directory().join("floor"))?;
    let mut times = Vec::with_capacity(APPENDS);
    for _ in 0..APPENDS {
        let began = Instant::now();
        file.write_all(&[7; APPEND_BYTES])?;
        file.sync_data()?;
        times.push(began.elapsed());
    }
    Ok(median(times))
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort();
    times[times.len() / 2]
}
