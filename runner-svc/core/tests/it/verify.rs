//! Verification notices what was changed after the fact, and says where.

use content_digest::Digest;
use runner_core::{
    entry::Entry,
    event::{Event, Recorded},
    outcome::FailureCause,
    pinned::Executor,
    verify::{Class, Divergence, Replay, Verdict},
};
use serde_json::json;

use crate::sim::{Setup, Sim, verify};

/// A run with everything in it: a loop's retry, an ask, a crash.
fn journal() -> Sim {
    let plan = json!({"nodes": ["a", "approve", "b"], "retries": {"a": 1},
        "edges": [{"src": "a", "dst": "approve"}, {"src": "approve", "dst": "b", "cond": "ok"}]});
    let mut sim = Setup::of(plan).with("approve", Executor::Person).start();
    sim.fail("a", FailureCause::Timeout);
    sim.take_over();
    sim.done("a", json!({"x": 1}));
    sim.answer("user:bea", r#"{"ok":true}"#);
    sim.done("b", "{}");
    sim.output();
    sim
}

/// The same journal with one event changed and the chain mended behind it, as someone with the store in hand could.
fn forged(sim: &Sim, at: usize, change: impl Fn(&mut Recorded)) -> Vec<Entry> {
    let mut previous = Digest::ZERO;
    let mut entries = Vec::new();
    for (place, entry) in sim.entries.iter().enumerate() {
        let mut recorded = Recorded { previous, ..entry.recorded().clone() };
        if place == at {
            change(&mut recorded);
        }
        let entry = Entry::seal(recorded);
        previous = entry.hash();
        entries.push(entry);
    }
    entries
}

fn divergence(entries: &[Entry]) -> Divergence {
    verify(entries).divergence.expect("it is not clean")
}

#[test]
fn an_untouched_journal_is_clean_at_every_batch() {
    let sim = journal();
    let verdict = sim.verify();
    assert!(verdict.is_clean());
    assert_eq!(verdict.events, sim.entries.len() as u64);
    assert_eq!(verdict.head, sim.state.head());
    assert_eq!(verdict.state_digest, Digest::of(sim.output()));
    // Inputs: RunStarted, failure, takeover, result, answer, result. Everything else was decided.
    assert_eq!(verdict.decisions, verdict.events - 6);
}

#[test]
fn a_changed_event_shows_in_the_chain_right_behind_it() {
    let sim = journal();
    for at in 0..sim.entries.len() - 1 {
        let mut entries = sim.entries.clone();
        let recorded = entries[at].recorded().clone();
        entries[at] = Entry::seal(Recorded { at_ms: recorded.at_ms + 1, ..recorded });
        let found = divergence(&entries);
        // Only what is due is counted from the event's own time: there the event itself is another than the one decided.
        let own_time = matches!(sim.entries[at].event(), Event::RetryScheduled { .. });
        assert_eq!(found.sequence, at as u64 + u64::from(!own_time), "{at}: {found}");
        assert!(found.to_string().starts_with("RUN-E009: event "), "{found}");
    }
}

#[test]
fn a_changed_last_event_shows_against_the_stored_head() {
    let sim = journal();
    let mut entries = sim.entries.clone();
    let last = entries.pop().unwrap();
    entries.push(Entry::seal(Recorded { at_ms: last.at_ms() + 1, ..last.recorded().clone() }));
    let mut replay = Replay::new();
    entries.iter().for_each(|entry| replay.push(entry));
    let verdict: Verdict = replay.finish(Some(sim.state.head()));
    assert_eq!(verdict.divergence.unwrap().sequence, entries.len() as u64 - 1);
}

#[test]
fn a_lost_repeated_or_swapped_event_is_named() {
    let sim = journal();
    for at in 0..sim.entries.len() {
        let mut lost = sim.entries.clone();
        lost.remove(at);
        assert_eq!(divergence(&lost).sequence, at as u64, "lost {at}");
        let mut repeated = sim.entries.clone();
        repeated.insert(at, sim.entries[at].clone());
        assert_eq!(divergence(&repeated).sequence, at as u64 + 1, "repeated {at}");
        if at > 0 {
            let mut swapped = sim.entries.clone();
            swapped.swap(at - 1, at);
            assert_eq!(divergence(&swapped).sequence, at as u64 - 1, "swapped {at}");
        }
    }
}

#[test]
fn a_journal_cut_inside_a_batch_is_noticed() {
    let sim = journal();
    let cut = &sim.entries[..sim.entries.len() - 1];
    let found = divergence(cut);
    assert_eq!(found.sequence, cut.len() as u64);
    assert!(found.problem.contains("RunFinished has to follow"), "{found}");
    assert!(divergence(&[]).problem.contains("empty"));
}

#[test]
fn a_decision_that_would_be_another_today_is_named_with_its_fields() {
    let sim = journal();
    let closed = sim.kinds().iter().position(|kind| *kind == "SuperstepClosed").unwrap();
    let entries = forged(&sim, closed, |recorded| {
        if let Event::SuperstepClosed { state, .. } = &mut recorded.event {
            *state = Digest::of("forged");
        }
    });
    let found = divergence(&entries);
    assert_eq!(found.sequence, closed as u64);
    assert!(found.problem.contains("SuperstepClosed: state has to be"), "{found}");
    assert!(found.problem.contains(&Digest::of("forged").to_hex()), "{found}");
}

#[test]
fn a_mended_chain_does_not_hide_a_changed_result() {
    let sim = journal();
    let result = sim.kinds().iter().rposition(|kind| *kind == "ResultRecorded").unwrap();
    let entries = forged(&sim, result, |recorded| {
        let mut other = Setup::default().start();
        other.done("work", json!({"stolen": true}));
        let Event::ResultRecorded { outcome, .. } = &mut recorded.event else { panic!("a result") };
        let forged = other.entries.iter().find_map(|entry| match entry.event() {
            Event::ResultRecorded { outcome, .. } => Some(outcome.clone()),
            _ => None,
        });
        *outcome = forged.unwrap();
    });
    assert_eq!(divergence(&entries).sequence, result as u64 + 1);
}

#[test]
fn an_answer_of_the_starter_is_never_clean() {
    let sim = journal();
    let answer = sim.kinds().iter().position(|kind| *kind == "AskAnswered").unwrap();
    let entries = forged(&sim, answer, |recorded| {
        if let Event::AskAnswered { by, .. } = &mut recorded.event {
            *by = "user:runner".to_owned();
        }
    });
    let found = divergence(&entries);
    assert_eq!(found.sequence, answer as u64);
    assert!(found.problem.contains("cannot answer its asks"), "{found}");
}

#[test]
fn an_event_after_the_end_or_one_that_nothing_asked_for_is_refused() {
    let sim = journal();
    let intrude = |event: Event| {
        let mut entries = sim.entries.clone();
        let (sequence, previous) = (entries.len() as u64, entries.last().unwrap().hash());
        entries.push(Entry::seal(Recorded { sequence, at_ms: sim.now, previous, event }));
        divergence(&entries)
    };
    let found = intrude(Event::CancelRequested { by: "x".to_owned(), reason: String::new() });
    assert!(found.problem.contains("the run has ended"), "{found}");
    let found = intrude(Event::SuperstepOpened { superstep: 9 });
    assert!(found.problem.contains("nothing decides on SuperstepOpened"), "{found}");
    assert_eq!(found.sequence, sim.entries.len() as u64);
}

#[test]
fn a_record_that_cannot_be_read_is_the_first_bad_event() {
    let sim = journal();
    let mut replay = Replay::new();
    replay.push(&sim.entries[0]);
    replay.push(&sim.entries[1]);
    replay.push_damaged("the record does not decode");
    replay.push(&sim.entries[2]);
    let verdict = replay.finish(None);
    assert_eq!(
        verdict.divergence.unwrap(),
        Divergence { sequence: 2, class: Class::Record, problem: "the record does not decode".to_owned() }
    );
    assert_eq!(verdict.events, 2);
}

#[test]
fn a_journal_of_another_engine_epoch_is_not_driven() {
    let setup = Setup::default();
    let input = runner_core::read_input("{}").unwrap();
    let mut manifest = setup.manifest(&input);
    manifest.engine_epoch += 1;
    let error = runner_core::run::start(&manifest, input.clone(), 0).unwrap_err();
    assert!(error.problem.starts_with("RUN-E026"), "{error}");
    manifest.engine_epoch -= 1;
    manifest.input_digest = Digest::of("other");
    let error = runner_core::run::start(&manifest, input, 0).unwrap_err();
    assert!(error.problem.starts_with("RUN-E010"), "{error}");
}
