//! Cancel against completion, again and again: one end each, and nothing after it.

use std::{collections::BTreeSet, fmt::Write as _};

use content_digest::Digest;
use futures::{StreamExt as _, stream};
use proto::tool::v1::{ExecuteToolResponse, execute_tool_response::Outcome};
use runner_core::{event::Event, manifest::WAVE_EFFECTS_MAX, outcome::RunOutcome};
use runner_svc::{
    dispatch::HostToolAt,
    runs::{Command, Runs, load},
};
use tokio::sync::oneshot;

use crate::{
    dispatch::fake_tool::FakeTool,
    recovery::rig::{Host, Plan, manifest},
};

/// How often a cancel meets a run.
const TRIALS: u64 = 2000;
/// Runs at once.
const AT_ONCE: usize = 32;
/// What the dice of all trials are thrown with; printed with a failure.
const SEED: u64 = 0x5eed_2026;
/// Events that a run has after its start, after its first tool, and at its end.
const MOMENTS: [u64; 3] = [3, 7, 10];

/// What a trial is decided by.
struct Dice(Digest);

impl Dice {
    fn of(trial: u64) -> Self {
        Self(Digest::of(format!("{SEED} {trial}")))
    }

    /// One of so many, by the n-th throw.
    fn throw(&self, nth: usize, sides: u64) -> u64 {
        u64::from(self.0.as_bytes()[nth]) % sides
    }
}

/// How one trial ended.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
enum End {
    Canceled,
    AlreadyFinished,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_of_two_thousand_cancels_against_completion_leaves_one_end_and_nothing_after_it() {
    let answer = ExecuteToolResponse { outcome: Some(Outcome::OutputJson("{}".to_owned())) };
    let tool = FakeTool::answering(Ok(answer)).await;
    let host = Host::with_tool(HostToolAt::Url(tool.url.clone()));
    let runs = host.runs();
    let trials = stream::iter(0..TRIALS).map(|trial| meet(runs.clone(), trial));
    let ends: Vec<End> = trials.buffer_unordered(AT_ONCE).collect().await;
    let kinds: BTreeSet<&End> = ends.iter().collect();
    assert_eq!(kinds.len(), 2, "both sides win now and then");
    assert_eq!(ends.len() as u64, TRIALS);
}

/// One run, canceled at a moment that the dice choose.
async fn meet(runs: Runs, trial: u64) -> End {
    let (dice, run_id) = (Dice::of(trial), format!("trial-{trial}"));
    let (mut frozen, input) = manifest(&run_id, &Plan::tools(), "{}");
    frozen.wave_effects_max = Some(WAVE_EFFECTS_MAX);
    frozen.reserves_storage = true;
    runs.start(&frozen, input).await.unwrap();
    let moment = MOMENTS[usize::try_from(dice.throw(0, 3)).unwrap()];
    if let Some(handle) = runs.live(&run_id) {
        let mut views = handle.follow();
        let _ended_before = views.wait_for(|view| view.summary.events >= moment || view.is_over()).await;
    }
    for _ in 0..dice.throw(1, 64) {
        tokio::task::yield_now().await;
    }
    let first = cancel(&runs, &run_id).await;
    let again = cancel(&runs, &run_id).await;
    let told = format!("trial {trial} of seed {SEED:#x}: {}", journal(&runs, &run_id));
    let end = ended_once(&runs, &run_id, &told);
    for said in [first, again].into_iter().flatten() {
        assert_eq!(said, end, "what the cancel says is what the journal says; {told}");
    }
    let receipt = || load::receipt(&runs.shared().journal, &run_id).unwrap();
    assert_eq!(receipt(), receipt(), "{told}");
    end
}

/// What a cancel says; none when nobody drives the run any more: then its journal says it.
async fn cancel(runs: &Runs, run_id: &str) -> Option<End> {
    let handle = runs.live(run_id)?;
    let (reply, ended) = oneshot::channel();
    handle.send(Command::Cancel { by: "user:boss".to_owned(), reason: String::new(), reply }).await.ok()?;
    let ended = ended.await.ok()?.ok()?;
    Some(match ended.view.outcome {
        Some(RunOutcome::Canceled { .. }) => End::Canceled,
        _ => End::AlreadyFinished,
    })
}

/// One end, the last event; no intent behind the cancel, and a result for each one before it.
fn ended_once(runs: &Runs, run_id: &str, told: &str) -> End {
    let (mut ends, mut canceled, mut pending) = (Vec::new(), false, BTreeSet::new());
    load::entries(&runs.shared().journal, run_id, 0, |entry| {
        assert!(ends.is_empty(), "nothing after the end; {told}");
        match entry.event() {
            Event::IntentRecorded { key, .. } => {
                assert!(!canceled, "nothing is dispatched after the cancel; {told}");
                pending.insert(key.clone());
            }
            Event::ResultRecorded { key, .. } => assert!(pending.remove(key), "{told}"),
            Event::CancelRequested { .. } => canceled = true,
            Event::RunFinished { outcome, .. } => ends.push(outcome.clone()),
            _ => {}
        }
        Ok::<_, load::LoadError>(true)
    })
    .unwrap();
    assert_eq!(ends.len(), 1, "one end; {told}");
    assert!(pending.is_empty(), "every effect has its result; {told}");
    match &ends[0] {
        RunOutcome::Canceled { .. } => {
            assert!(canceled, "{told}");
            End::Canceled
        }
        outcome => {
            assert!(!canceled, "a run that was canceled ends so: {outcome:?}; {told}");
            End::AlreadyFinished
        }
    }
}

fn journal(runs: &Runs, run_id: &str) -> String {
    let mut kinds = String::new();
    let listing = load::entries(&runs.shared().journal, run_id, 0, |entry| {
        write!(kinds, "{} ", entry.event().kind()).unwrap();
        Ok::<_, load::LoadError>(true)
    });
    listing.unwrap();
    kinds
}
