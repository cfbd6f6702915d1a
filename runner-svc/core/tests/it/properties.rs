//! Whatever the plan: any completion order and any crash lead to the same bytes, and every journal verifies.

use proptest::prelude::*;
use runner_core::{
    event::{Event, Exchange},
    input::Input,
    outcome::{EffectOutcome, Failure, FailureCause, RunOutcome, Usage},
    payload::Payload,
};

use crate::{
    dice::{self, Dice},
    driving::{self, Order},
    generated::Case,
    sim::{Setup, Sim, wasm_io},
};

/// Generated plans of each property.
const CASES: u64 = 2000;
/// Crashes of one run.
const CRASHES_MAX: usize = 4;

/// What must not depend on order or crashes: outcome, final state, and the state after every superstep.
fn essence(sim: &Sim) -> (RunOutcome, String, Vec<String>) {
    let closes = sim.entries.iter().filter_map(|entry| match entry.event() {
        Event::SuperstepClosed { .. } => Some(entry.event().to_json()),
        _ => None,
    });
    (sim.outcome().clone(), sim.state.document().text().to_owned(), closes.collect())
}

/// The run in the plan's order, without a crash.
fn plain(case: &Case) -> Sim {
    let mut sim = case.setup().start();
    driving::to_the_end(case, &mut sim, Order::ByPlan);
    sim
}

fn assert_same(sim: &Sim, plain: &Sim, case: &Case) {
    assert_eq!(essence(sim), essence(plain), "{:#}", case.plan);
    let verdict = sim.verify();
    assert!(verdict.is_clean(), "{:?} of {:#}", verdict.divergence, case.plan);
    let folded = sim.reopen(sim.entries.len());
    assert_eq!(folded.state.document(), sim.state.document());
    assert_eq!(folded.state.spent(), sim.state.spent());
}

#[test]
fn any_completion_order_gives_the_same_bytes_and_a_clean_journal() {
    dice::play(CASES, |seed| {
        let case = Case::of(seed);
        let mut sim = case.setup().start();
        driving::to_the_end(&case, &mut sim, Order::Drawn(Dice::about(seed, "order")));
        assert_same(&sim, &plain(&case), &case);
    });
}

#[test]
fn crashes_at_any_points_in_any_order_lead_to_the_same_bytes_and_a_clean_journal() {
    dice::play(CASES, |seed| {
        let case = Case::of(seed);
        let mut dice = Dice::about(seed, "crashes");
        let mut order = Order::Drawn(Dice::about(seed, "order"));
        let mut sim = case.setup().start();
        let mut crashes = 0;
        while sim.state.outcome().is_none() || crashes == 0 {
            if crashes < CRASHES_MAX && (sim.state.outcome().is_some() || dice.once_in(4)) {
                // Whatever was not acknowledged is gone: any number of entries from the end.
                sim = sim.reopen(1 + dice.below(sim.entries.len()));
                crashes += 1;
                if sim.state.outcome().is_none() {
                    sim.take_over();
                }
            } else {
                driving::step(&case, &mut sim, &mut order);
            }
        }
        assert_same(&sim, &plain(&case), &case);
    });
}

#[test]
fn a_crash_after_each_event_in_turn_leads_to_the_same_bytes() {
    dice::play(CASES / 20, |seed| {
        let case = Case::of(seed);
        let whole = plain(&case);
        for cut in 1..whole.entries.len() {
            let mut sim = whole.reopen(cut);
            sim.take_over();
            driving::to_the_end(&case, &mut sim, Order::ByPlan);
            assert_same(&sim, &whole, &case);
        }
    });
}

#[test]
fn a_cancel_at_any_time_gives_exactly_one_end_and_nothing_after_it() {
    dice::play(CASES, |seed| {
        let case = Case::of(seed);
        let mut dice = Dice::about(seed, "cancel");
        let mut order = Order::Drawn(Dice::about(seed, "order"));
        let mut sim = case.setup().start();
        for _ in 0..dice.below(30) {
            if sim.state.outcome().is_none() {
                driving::step(&case, &mut sim, &mut order);
            }
        }
        let finished = sim.state.outcome().is_some();
        let dispatched = sim.count("IntentRecorded") + sim.count("AskRaised");
        assert_eq!(sim.cancel().declined.is_some(), finished);
        let keys: Vec<_> = sim.state.flights().map(|flight| flight.key.clone()).collect();
        for key in keys {
            let outcome = EffectOutcome::Failed { failure: Failure::new(FailureCause::UserAborted, "stopped") };
            sim.feed(Input::Result { key, outcome, usage: Usage::default() });
        }
        assert_eq!(sim.count("RunFinished"), 1);
        assert_eq!(sim.last().kind(), "RunFinished");
        assert_eq!(sim.count("IntentRecorded") + sim.count("AskRaised"), dispatched);
        let length = sim.entries.len();
        assert!(sim.cancel().declined.is_some(), "a second cancel finds the end");
        assert_eq!(sim.entries.len(), length);
        assert!(sim.verify().is_clean());
    });
}

proptest! {
    #[test]
    fn exchanges_in_order_are_kept_and_others_change_nothing(ordinals in proptest::collection::vec(0_u32..4, 0..8)) {
        let mut sim = Setup::default().with("work", wasm_io()).start();
        let key = sim.key("work");
        let mut kept = 0;
        for ordinal in ordinals {
            let (request, response) = (content_digest::Digest::of("q"), Payload::new("{}"));
            let exchange = Exchange { ordinal, request, response, record: None, refused: false, blobs: Vec::new() };
            let fed = sim.feed(Input::Exchange { key: key.clone(), exchange });
            prop_assert_eq!(fed.declined.is_none(), ordinal == kept);
            kept += u32::from(ordinal == kept);
        }
        prop_assert_eq!(sim.state.spent().egress_calls, u64::from(kept));
        prop_assert!(sim.verify().is_clean());
    }
}
