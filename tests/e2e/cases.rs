//! Cases that other engines' users met, one test each, named after what happens.

mod cancel;
mod error_source;
mod ids;
mod limits;
mod memory;
mod metrics;
mod neighbours;
mod owners;
mod respond;
mod stuck;
mod torn;

use std::time::Instant;

use e2e::{
    client::Client,
    process::{PATIENCE, POLL},
};
use proto::runner::v1::{NodePolicy, Run, RunOptions};

/// Polls until a run is as it should become.
async fn until(client: &Client, run_id: &str, what: &str, holds: impl Fn(&Run) -> bool) -> Run {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let run = client.get(run_id).await.unwrap();
        if holds(&run) {
            return run;
        }
        assert!(Instant::now() < deadline, "{run_id} never {what}: {run:?}");
        tokio::time::sleep(POLL).await;
    }
}

/// Until it says that it waits for something.
async fn waits_for(client: &Client, run_id: &str, what: &str) -> Run {
    until(client, run_id, &format!("waits for {what}"), |run| {
        run.waiting.iter().any(|waiting| waiting.what.contains(what))
    })
    .await
}

/// One journal with one end, at its end.
async fn ended_once(client: &Client, run_id: &str) {
    let events = client.events(run_id).await.unwrap();
    let ends = events.iter().filter(|event| event.kind == "RunFinished").count();
    assert_eq!((ends, events.last().unwrap().kind.as_str()), (1, "RunFinished"), "{run_id}");
    let verified = client.verify(run_id).await.unwrap();
    assert!(verified.clean, "{run_id}: {}", verified.divergence);
}

/// A policy for the node `work`.
fn policy(change: impl FnOnce(&mut NodePolicy)) -> RunOptions {
    let mut policy = NodePolicy { node: "work".to_owned(), timeout: None, backoff: None };
    change(&mut policy);
    RunOptions { node_policies: vec![policy], ..RunOptions::default() }
}
