//! A plan with a node of every kind, killed before and after every journal write, exchanges among them: what was recorded is
//! not done again, what was in flight is sent again under its own name, and the end is the one of a run without a crash.

mod life;
mod name;
mod plan;

use std::{collections::BTreeSet, io::Write as _, time::SystemTime};

use e2e::flags::Flags;
use proto::runner::v1::Event;

use self::{
    life::Life,
    name::Name,
    plan::{BACKOFF_MS, Everything},
};

/// More commits than any run here makes: a bound for the sweeps.
const COMMITS_MAX: u32 = 200;

/// Where in a commit the runner dies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Point {
    /// Nothing of it has left the process.
    Before,
    /// It is durable, and nobody was told.
    After,
}

impl Point {
    fn arm(self, mut flags: Flags, commit: u32) -> Flags {
        flags.no_crash();
        match self {
            Self::Before => flags.crash_before_commit(commit),
            Self::After => flags.crash_after_commits(commit),
        }
    }
}

#[tokio::test]
async fn a_kill_before_every_journal_write_repeats_nothing_recorded() {
    sweep(Point::Before).await;
}

#[tokio::test]
async fn a_kill_after_every_journal_write_repeats_nothing_recorded() {
    sweep(Point::After).await;
}

async fn sweep(point: Point) {
    let mut everything = Everything::start().await;
    let whole = uncrashed(&mut everything).await;
    let of_a_start = commits_of_a_start(&mut everything, point).await;
    let mut table = Vec::new();
    for commit in 1..COMMITS_MAX {
        everything.arm(|flags| point.arm(flags, of_a_start + commit)).await.expect("the runner starts");
        let run_id = format!("{point:?}-{commit}").to_lowercase();
        everything.begin().await;
        let first = everything.live(&run_id).await;
        if first.completed {
            // Past the capture of a passing test's output.
            let killed = format!("{} points were killed, each {point:?} a commit:", table.len()).to_lowercase();
            let table = format!("{killed}\n{}\n", table.join("\n"));
            std::io::stdout().write_all(table.as_bytes()).unwrap();
            assert!(table.len() > 8, "a run with a node of every kind makes more commits");
            return;
        }
        everything.arm(disarmed).await.expect("the runner starts again");
        let second = everything.live(&run_id).await;
        assert!(second.completed, "{run_id} does not get to its end");
        table.push(row(commit, &judged(&everything, &run_id, &first, &second, &whole).await));
    }
    panic!("the run still makes commits after {COMMITS_MAX} of them");
}

fn disarmed(mut flags: Flags) -> Flags {
    flags.no_crash();
    flags
}

/// How a run and the runs below it end.
struct End {
    output: String,
    /// Digests of the final states, as the journals make them: the run's, then those below it.
    states: Vec<String>,
}

/// The end of a run, whose journals must hold.
async fn end_of(everything: &Everything, run_id: &str) -> End {
    let mut states = Vec::new();
    for journal in everything.journals(run_id).await {
        let verified = everything.verify(&journal).await;
        assert!(verified.clean, "{journal}: {}", verified.divergence);
        states.push(verified.state_digest);
    }
    End { output: everything.output(run_id).await, states }
}

/// The end of a run that nobody disturbs; its journal has every kind of node.
async fn uncrashed(everything: &mut Everything) -> End {
    everything.begin().await;
    let life = everything.live("whole").await;
    assert!(life.completed);
    let events = everything.events("whole").await;
    assert_eq!(everything.journals("whole").await.len(), 2, "the plan has a subgraph");
    for kind in ["ExchangeRecorded", "AskRaised", "RetryScheduled"] {
        assert!(events.iter().any(|event| event.kind == kind), "the plan leads to no {kind}");
    }
    let entries = everything.entries("whole").await;
    let kinds: BTreeSet<&str> = entries.iter().map(|entry| entry.kind.as_str()).collect();
    assert_eq!(kinds, BTreeSet::from(["ask", "llm", "subgraph", "tool"]), "an effect of every kind");
    let end = end_of(everything, "whole").await;
    assert_eq!(end.states.iter().collect::<BTreeSet<_>>().len(), 2, "two states, each with its own digest");
    end
}

/// Commits that a start makes by itself when there is nothing to recover.
async fn commits_of_a_start(everything: &mut Everything, point: Point) -> u32 {
    for commit in 1..COMMITS_MAX {
        if everything.arm(|flags| point.arm(flags, commit)).await.is_ok() {
            return commit - 1;
        }
    }
    panic!("a start makes more than {COMMITS_MAX} commits");
}

/// What a crash led to.
struct Judged {
    /// The last event that was durable.
    last_durable: String,
    /// Events that were durable.
    durable: usize,
    /// What was sent again.
    again: BTreeSet<Name>,
}

fn row(commit: u32, judged: &Judged) -> String {
    let again: Vec<_> = judged.again.iter().map(Name::to_string).collect();
    let (durable, last) = (judged.durable, &judged.last_durable);
    format!(
        "  commit {commit:>3}   {durable:>3} events durable, the last {last:<17}   sent again: {}",
        again.join(", ")
    )
}

/// Everything that must hold after a crash in the first life and the end in the second.
async fn judged(everything: &Everything, run_id: &str, first: &Life, second: &Life, whole: &End) -> Judged {
    let end = end_of(everything, run_id).await;
    assert_eq!(end.output, whole.output, "{run_id} ends with another output");
    assert_eq!(end.states, whole.states, "{run_id} or the run below it ends in another state");
    let events = everything.events(run_id).await;
    let at = |event: &Event| SystemTime::try_from(event.at.unwrap()).unwrap();
    let (before, after): (Vec<Event>, Vec<Event>) = events.into_iter().partition(|event| at(event) <= first.ended_at);
    let names = |kinds: &[&str], of: &[Event]| -> BTreeSet<Name> {
        of.iter().filter(|event| kinds.contains(&event.kind.as_str())).map(Name::in_event).collect()
    };
    let intended = names(&["IntentRecorded"], &before);
    let recorded = names(&["ResultRecorded", "AskAnswered"], &before);
    let redelivered = names(&["Redelivered"], &after);

    let entries = everything.entries(run_id).await;
    let (sent_first, sent_then) = (first.sent(&entries), second.sent(&entries));
    assert!(sent_first.is_subset(&intended), "{run_id}: {sent_first:?} were sent, {intended:?} were durable");
    assert!(sent_then.is_disjoint(&recorded), "{run_id}: {sent_then:?} were sent after {recorded:?} were recorded");
    let again: BTreeSet<Name> = sent_first.intersection(&sent_then).cloned().collect();
    for name in &again {
        assert!(redelivered.contains(name) || name.is_pure(), "{run_id}: {name} came again and nothing says so");
    }
    for name in &redelivered {
        assert!(
            intended.contains(name) && !recorded.contains(name) && !name.is_pure(),
            "{run_id}: {name} was redelivered"
        );
    }
    the_delay_is_kept(run_id, &before, &after);
    let exchanges = names(&["ExchangeRecorded"], &before);
    for question in [0, 2] {
        let (in_first, in_second) = (first.questions(question), second.questions(question));
        assert!(in_first <= 1 && in_second <= 1, "{run_id}: question {question} was asked twice in one life");
        assert!(in_first + in_second >= 1, "{run_id}: question {question} was never asked");
        let answered = exchanges.contains(&Name::question(question));
        assert!(!answered || in_second == 0, "{run_id}: question {question} was asked again after its answer");
    }
    let of_the_module = |event: &&Event| event.kind == "ExchangeRecorded" && Name::in_event(event).is_of("calls_out");
    let exchanged = before.iter().filter(of_the_module).count();
    for (place, path) in plan::PATHS.iter().enumerate() {
        let (in_first, in_second) = (first.requests(path), second.requests(path));
        assert!(in_first <= 1 && in_second <= 1, "{run_id}: {path} was called twice in one life");
        assert!(
            place >= exchanged || in_second == 0,
            "{run_id}: {path} was called again after its answer was recorded"
        );
        assert!(in_first + in_second >= 1 && (place <= exchanged || in_first == 0), "{run_id}: {path} out of turn");
    }
    let last_durable = before.last().map_or("none", |event| event.kind.as_str()).to_owned();
    Judged { last_durable, durable: before.len(), again }
}

/// The failed attempt is followed by one delay, however often its process dies: the second attempt begins when it is over.
fn the_delay_is_kept(run_id: &str, before: &[Event], after: &[Event]) {
    let all = || before.iter().chain(after);
    let ms = |event: &Event| {
        let at = event.at.unwrap();
        u64::try_from(at.seconds * 1000 + i64::from(at.nanos / 1_000_000)).unwrap()
    };
    let delays: Vec<&Event> = all().filter(|event| event.kind == "RetryScheduled").collect();
    assert_eq!(delays.len(), 1, "{run_id}: one failure, one delay");
    let body: serde_json::Value = serde_json::from_str(&delays[0].body_json).unwrap();
    let due_ms = body["due_ms"].as_u64().unwrap();
    let is_second = |event: &&Event| event.kind == "IntentRecorded" && Name::in_event(event).is_attempt("flaky", 2);
    let second = all().find(is_second).unwrap_or_else(|| panic!("{run_id}: flaky was not tried again"));
    assert!(due_ms >= ms(delays[0]) + BACKOFF_MS && ms(second) >= due_ms, "{run_id}: tried again before its time");
}
