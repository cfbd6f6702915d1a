//! A fork whose first step is more than one append holds is made all the same, in as many as it needs.

use std::fmt::Write as _;

use runner_core::{lineage::Lineage, manifest::Manifest, run_id::RunId};
use runner_svc::{
    journal::APPEND_ASKS_MAX,
    runs::{RunStatus, Started, load},
};

use crate::recovery::rig::{Host, Plan, eventually, manifest};

/// Questions of one superstep: more than one append raises.
const ASKS: usize = APPEND_ASKS_MAX + 100;

fn name(ask: usize) -> String {
    let mut name = "ask".to_owned();
    write!(name, "{ask:05}").unwrap();
    name
}

#[tokio::test]
async fn a_fork_with_more_to_begin_with_than_one_append_holds_is_made_and_survives_a_restart() {
    let mut host = Host::new();
    let plan = Plan::tool_then_people((0..ASKS).map(name));
    host.start("r1", &plan, "{}").await;
    let journal = host.runs().shared().journal.clone();
    let waits = |runs: &runner_svc::runs::Runs, run_id: &str| {
        runs.live(run_id).is_some_and(|run| run.view().summary.status == RunStatus::Waiting)
    };
    eventually("everybody is asked", || waits(&host.runs(), "r1")).await;

    let at = load::fork_point(&journal, "r1", 1).unwrap().expect("the first superstep is closed");
    let lineage = Lineage {
        run_id: RunId::parse("r1").unwrap(),
        superstep: at.supersteps(),
        sequence: at.events() - 1,
        head: at.head(),
        started_by: vec!["user:runner".to_owned()],
        checkpoint: at.checkpoint(),
    };
    let (frozen, _) = manifest("r2", &plan, "{}");
    let input = at.document().clone();
    let frozen = Manifest { lineage: Some(lineage), input_digest: input.digest(), ..frozen };
    let started = host.runs().start(&frozen, input).await.unwrap();
    assert!(matches!(started, Started::New(_)));
    let info = journal.run("r2").unwrap();
    assert_eq!(info.next_sequence, 2 + ASKS as u64, "its start, the superstep, and every question");
    drop(journal);

    host.restart().await;
    let runs = host.runs();
    eventually("both runs wait again", || waits(&runs, "r1") && waits(&runs, "r2")).await;
    assert_eq!(runs.live("r2").unwrap().view().asks.len(), ASKS);
}
