//! Pause: what is in flight settles, the superstep closes, and no other opens until someone resumes the run.

use runner_core::{
    budget::Budgets,
    input::{Declined, Input, PAUSES_MAX},
    outcome::{FailureCause, RunOutcome},
    owed::{next_tick_ms, owed},
    pinned::Executor,
    state::Status,
    why::why,
};
use serde_json::json;

use crate::sim::{Setup, Sim};

fn chain() -> Setup {
    Setup::of(json!({"nodes": ["a", "b"], "edges": [{"src": "a", "dst": "b"}]}))
}

fn pause(sim: &mut Sim) -> Option<Declined> {
    sim.feed(Input::Pause { by: "user:boss".to_owned() }).declined
}

fn resume(sim: &mut Sim) -> Option<Declined> {
    sim.feed(Input::Resume { by: "user:bea".to_owned() }).declined
}

#[test]
fn a_paused_run_rests_at_the_next_superstep_until_it_is_resumed() {
    let mut sim = chain().start();
    assert_eq!(pause(&mut sim), None);
    assert_eq!((sim.in_flight(), sim.state.status()), (vec!["a"], Status::Running));
    let waiting = why(&sim.state);
    assert!(waiting[1].what.contains("to pause there for user:boss"), "{waiting:?}");
    sim.done("a", "{}");
    assert_eq!((sim.in_flight().len(), sim.state.status()), (0, Status::Paused));
    assert_eq!(sim.last().kind(), "SuperstepClosed");
    let waiting = why(&sim.state);
    assert!(
        waiting[0].what.contains("which user:boss paused") && waiting[0].unblocked_by == "ResumeRun",
        "{waiting:?}"
    );
    assert!(owed(&sim.state).is_empty() && next_tick_ms(&sim.state).is_none());
    assert!(sim.verify().is_clean());

    let mut sim = sim.reopen(sim.entries.len());
    sim.take_over();
    assert_eq!(sim.state.status(), Status::Paused, "a restart does not resume it");
    assert_eq!(resume(&mut sim), None);
    assert_eq!(sim.in_flight(), ["b"]);
    sim.done("b", "{}");
    assert!(matches!(sim.outcome(), RunOutcome::Completed { .. }));
    assert!(sim.verify().is_clean());
}

#[test]
fn pausing_twice_and_resuming_twice_are_the_same_as_once() {
    let mut sim = chain().start();
    assert_eq!((pause(&mut sim), pause(&mut sim)), (None, None));
    assert_eq!((resume(&mut sim), resume(&mut sim)), (None, None));
    assert_eq!((sim.count("PauseRequested"), sim.count("Resumed")), (1, 1));
    assert!(sim.verify().is_clean());
}

#[test]
fn a_run_is_paused_at_most_as_often_as_its_bound_says() {
    let mut sim = chain().start();
    for _ in 0..PAUSES_MAX {
        assert_eq!((pause(&mut sim), resume(&mut sim)), (None, None));
    }
    let declined = pause(&mut sim);
    assert!(matches!(declined, Some(Declined::TooManyPauses { .. })), "{declined:?}");
    assert_eq!(sim.count("PauseRequested"), PAUSES_MAX as usize);
    assert!(matches!(pause(&mut sim.reopen(sim.entries.len())), Some(Declined::TooManyPauses { .. })));
    sim.done("a", "{}");
    sim.done("b", "{}");
    assert!(matches!(sim.outcome(), RunOutcome::Completed { .. }));
    assert!(sim.verify().is_clean());
}

#[test]
fn a_pause_that_comes_with_the_parents_is_always_taken() {
    let mut sim = crate::subgraphs::child_of_parent();
    let parent = sim.state.manifest().parent.clone().unwrap().name();
    for _ in 0..=PAUSES_MAX {
        assert_eq!(sim.feed(Input::Pause { by: parent.clone() }).declined, None);
        assert_eq!(sim.feed(Input::Resume { by: parent.clone() }).declined, None);
    }
    assert_eq!(pause(&mut sim), None, "its own are counted alone");
}

#[test]
fn a_run_that_ended_or_is_being_canceled_cannot_be_paused_or_resumed() {
    let mut sim = chain().start();
    sim.cancel();
    for steer in [pause, resume] {
        assert_eq!(steer(&mut sim), Some(Declined::NotPausable { state: "is being canceled" }));
    }
    sim.fail("a", FailureCause::UserAborted);
    for steer in [pause, resume] {
        assert_eq!(steer(&mut sim), Some(Declined::NotPausable { state: "has ended" }));
    }
}

#[test]
fn a_paused_run_can_be_canceled_and_its_failure_is_not_held_back() {
    let mut sim = chain().start();
    pause(&mut sim);
    sim.done("a", "{}");
    sim.cancel();
    assert!(matches!(sim.outcome(), RunOutcome::Canceled { .. }));
    let mut sim = chain().start();
    pause(&mut sim);
    sim.fail("a", FailureCause::Unknown);
    assert!(matches!(sim.outcome(), RunOutcome::Failed { .. }), "there is nothing left to hold back");
}

#[test]
fn a_question_can_be_answered_while_the_run_is_paused_and_nothing_follows() {
    let mut sim = chain().with("a", Executor::Person).start();
    pause(&mut sim);
    assert_eq!(sim.state.status(), Status::Paused);
    assert_eq!(sim.answer("user:bea", "{}"), None);
    assert_eq!((sim.in_flight().len(), sim.state.status()), (0, Status::Paused));
    resume(&mut sim);
    assert_eq!(sim.in_flight(), ["b"]);
    assert!(sim.verify().is_clean());
}

#[test]
fn paused_time_is_not_active_time() {
    let budgets = Budgets { max_wall_ms: Some(1000), ..Budgets::default() };
    let mut sim = Setup { budgets, ..chain() }.start();
    pause(&mut sim);
    sim.done("a", "{}");
    let active = sim.state.spent().wall_ms;
    sim.now += 1_000_000;
    resume(&mut sim);
    assert_eq!(sim.state.spent().wall_ms, active);
    assert_eq!(sim.in_flight(), ["b"]);
}
