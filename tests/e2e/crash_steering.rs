//! Runs that people steer, killed before and after every journal write: a pause that is asked for while an effect is in flight
//! and its end, a fork of a run and the run that it makes, a cancel with every kind of effect on its way. What was acknowledged
//! holds, nothing recorded is done again, and the end is the one of a run without a crash.

mod rig;

use std::{
    collections::{BTreeMap, BTreeSet},
    io::Write as _,
    time::SystemTime,
};

use e2e::flags::Flags;
use proto::runner::v1::{CancelResult, Event};

use self::rig::{Life, Steered, Steering};

/// More commits than any run here makes: a bound for the sweeps.
const COMMITS_MAX: u32 = 200;

/// How the runner is told at which commit it dies.
type Crash = fn(Flags, u32) -> Flags;

const BEFORE: (&str, Crash) = ("before", |flags, commit| flags.crash_before_commit(commit));
const AFTER: (&str, Crash) = ("after", |flags, commit| flags.crash_after_commits(commit));

#[tokio::test]
async fn a_kill_before_every_journal_write_of_a_paused_run_loses_no_pause_and_repeats_nothing_recorded() {
    sweep(Steering::Pause, BEFORE).await;
}

#[tokio::test]
async fn a_kill_after_every_journal_write_of_a_paused_run_loses_no_pause_and_repeats_nothing_recorded() {
    sweep(Steering::Pause, AFTER).await;
}

#[tokio::test]
async fn a_kill_before_every_journal_write_of_a_run_and_its_fork_repeats_nothing_recorded_of_either() {
    sweep(Steering::Fork, BEFORE).await;
}

#[tokio::test]
async fn a_kill_after_every_journal_write_of_a_run_and_its_fork_repeats_nothing_recorded_of_either() {
    sweep(Steering::Fork, AFTER).await;
}

#[tokio::test]
async fn a_kill_before_every_journal_write_of_a_canceled_run_sends_nothing_after_the_cancel() {
    sweep(Steering::Cancel, BEFORE).await;
}

#[tokio::test]
async fn a_kill_after_every_journal_write_of_a_canceled_run_sends_nothing_after_the_cancel() {
    sweep(Steering::Cancel, AFTER).await;
}

/// How a run, the runs below it and its fork end: status and digest of the final state.
type Ends = Vec<(i32, String)>;

async fn sweep(steering: Steering, (point, crash): (&str, Crash)) {
    let mut steered = Steered::start(steering).await;
    steered.begin();
    assert!(steered.live("whole").await.completed);
    let whole = ends(&steered, "whole").await;
    let of_a_start = commits_of_a_start(&mut steered, crash).await;
    let (mut table, mut met) = (Vec::new(), BTreeSet::new());
    for commit in 1..COMMITS_MAX {
        steered.arm(|flags| crash(flags, of_a_start + commit)).await.expect("the runner starts");
        let run_id = format!("{point}-{commit}");
        steered.begin();
        let first = steered.live(&run_id).await;
        if first.completed {
            told(steering, point, &table);
            assert!(table.len() >= 6, "{steering:?} makes more commits");
            for moment in steering.moments() {
                assert!(met.contains(moment), "no kill fell on a run that is {moment}: {met:?}");
            }
            return;
        }
        steered.arm(|flags| flags).await.expect("the runner starts again");
        let second = steered.live(&run_id).await;
        assert!(second.completed, "{run_id} does not get to its end");
        assert_eq!(ends(&steered, &run_id).await, whole, "{run_id} ends in another way");
        let judged = judged(&steered, &run_id, &first, &second).await;
        met.extend(judged.moment);
        table.push(format!("  commit {commit:>3}   {}", judged.row));
    }
    panic!("the run still makes commits after {COMMITS_MAX} of them");
}

/// Past the capture of a passing test's output.
fn told(steering: Steering, point: &str, table: &[String]) {
    let head = format!("{steering:?}: {} points were killed, each {point} a commit", table.len());
    std::io::stdout().write_all(format!("{head}\n{}\n", table.join("\n")).as_bytes()).unwrap();
}

/// Commits that a start makes by itself when there is nothing to recover.
async fn commits_of_a_start(steered: &mut Steered, crash: Crash) -> u32 {
    for commit in 1..COMMITS_MAX {
        if steered.arm(|flags| crash(flags, commit)).await.is_ok() {
            return commit - 1;
        }
    }
    panic!("a start makes more than {COMMITS_MAX} commits");
}

async fn ends(steered: &Steered, run_id: &str) -> Ends {
    let mut ends = Vec::new();
    for journal in steered.journals(run_id).await {
        let verified = steered.client().verify(&journal).await.unwrap();
        assert!(verified.clean, "{journal}: {}", verified.divergence);
        let run = steered.client().get(&journal).await.unwrap();
        ends.push((run.status, verified.state_digest));
    }
    ends
}

/// What a crash led to.
struct Judged {
    row: String,
    /// Where in the steering it fell; none of those that are looked for.
    moment: Option<&'static str>,
}

/// Everything that must hold after a crash in the first life and the end in the second.
async fn judged(steered: &Steered, run_id: &str, first: &Life, second: &Life) -> Judged {
    let (mut durable, mut last, mut recorded, mut redelivered) = (0, String::new(), BTreeSet::new(), BTreeSet::new());
    let (mut intended, mut keys, mut before_of) = (BTreeSet::new(), BTreeMap::new(), BTreeMap::new());
    for journal in steered.journals(run_id).await {
        let events = steered.client().events(&journal).await.unwrap();
        ends_once(&journal, &events);
        for entry in steered.client().entries(&journal).await.unwrap() {
            keys.insert(entry.idempotency_key.clone(), (journal.clone(), entry.node.clone(), entry.attempt));
        }
        let at = |event: &Event| SystemTime::try_from(event.at.unwrap()).unwrap();
        let (before, after): (Vec<Event>, Vec<Event>) =
            events.into_iter().partition(|event| at(event) <= first.ended_at);
        let names = |of: &[Event], kinds: &[&str]| -> Vec<_> {
            let of = of.iter().filter(|event| kinds.contains(&event.kind.as_str()));
            of.map(|event| rig::name_in(&journal, event)).collect()
        };
        recorded.extend(names(&before, &["ResultRecorded", "AskAnswered"]));
        intended.extend(names(&before, &["IntentRecorded"]));
        redelivered.extend(names(&after, &["Redelivered"]));
        durable += before.len();
        if let Some(event) = before.last() {
            last.clone_from(&event.kind);
        }
        before_of.insert(journal, before.into_iter().map(|event| event.kind).collect::<Vec<_>>());
    }
    let sent = |life: &Life| -> BTreeSet<_> {
        let name = |call: &e2e::shell_tool::Call| keys.get(&call.key).unwrap_or_else(|| panic!("{call:?} of no entry"));
        life.calls.iter().map(name).cloned().collect()
    };
    let (sent_first, sent_then) = (sent(first), sent(second));
    assert!(sent_first.is_subset(&intended), "{run_id}: {sent_first:?} were sent, {intended:?} were durable");
    assert!(sent_then.is_disjoint(&recorded), "{run_id}: {sent_then:?} were sent after {recorded:?} were recorded");
    let again: BTreeSet<_> = sent_first.intersection(&sent_then).collect();
    for name in &again {
        assert!(redelivered.contains(*name), "{run_id}: {name:?} came again and nothing says so");
    }
    assert!(redelivered.is_disjoint(&recorded), "{run_id}: {redelivered:?} were redelivered after {recorded:?}");
    steered.steered_once(run_id).await;
    let moment = steered.steering.moment(run_id, &before_of);
    if moment == Some(rig::CANCELING) {
        assert!(sent_then.is_empty() && second.requests == 0, "{run_id}: {sent_then:?} were sent after the cancel");
    }
    let nodes: Vec<&str> = again.iter().map(|(_, node, _)| node.as_str()).collect();
    let moment_shown = moment.unwrap_or("-");
    let row =
        format!("{durable:>3} events durable, the last {last:<17} {moment_shown:<28} sent again: {}", nodes.join(", "));
    Judged { row, moment }
}

fn ends_once(journal: &str, events: &[Event]) {
    let ends = events.iter().filter(|event| event.kind == "RunFinished").count();
    assert_eq!((ends, events.last().unwrap().kind.as_str()), (1, "RunFinished"), "{journal} ends once");
}

impl Steered {
    /// The request of the person is in the journal once, and asking again changes nothing.
    async fn steered_once(&self, run_id: &str) {
        let events = self.client().events(run_id).await.unwrap();
        let count = |kind: &str| events.iter().filter(|event| event.kind == kind).count();
        match self.steering {
            Steering::Pause => assert_eq!((count("PauseRequested"), count("Resumed")), (1, 1), "{run_id}"),
            Steering::Fork => {
                let forked = self.client().get(&rig::fork_of(run_id)).await.unwrap();
                let lineage = forked.lineage.expect("a fork says what it goes on from");
                assert_eq!((lineage.run_id.as_str(), lineage.superstep), (run_id, 1));
            }
            Steering::Cancel => {
                assert_eq!(count("CancelRequested"), 1, "{run_id}");
                let receipt = self.client().cancel(run_id, "again").await.unwrap();
                let fence = events.iter().find(|event| event.kind == "CancelRequested").unwrap().sequence;
                assert_eq!((receipt.result(), receipt.fence_sequence), (CancelResult::Canceled, fence), "{run_id}");
                let later = self.client().events(run_id).await.unwrap().len();
                assert_eq!(later, events.len(), "{run_id}: nothing comes after the end");
            }
        }
    }
}
