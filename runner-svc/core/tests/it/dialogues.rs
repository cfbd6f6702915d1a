//! Several models' loops side by side under budgets: whoever is answered first, and wherever a process dies, the same effects
//! are made, the same is spent, and the run ends in the same way.

use std::{collections::BTreeMap, sync::Mutex};

use runner_core::{
    budget::Budgets,
    event::Event,
    input::Input,
    key::{EffectKey, EffectKind},
    outcome::{EffectOutcome, Failure, FailureCause, Usage},
    payload::Payload,
};
use serde_json::json;

use crate::{
    dice::{self, Dice},
    models::model,
    sim::{Setup, Sim},
};

const CASES: u64 = 400;
const MODELS: [&str; 3] = ["x", "y", "z"];

/// Three models behind a tool, each of which calls that tool a few times, and beside them a tool that may fail for good.
fn setup(seed: u64) -> Setup {
    let mut dice = Dice::about(seed, "dialogues");
    let edges: Vec<_> = ["x", "y", "fails", "z"].map(|node| json!({"src": "work", "dst": node})).into();
    let plan = json!({"nodes": ["work", "x", "y", "fails", "z"], "edges": edges});
    let some = |dice: &mut Dice, least: usize, more: usize| dice.once_in(2).then(|| (least + dice.below(more)) as u64);
    let budgets = Budgets {
        max_effects: some(&mut dice, 4, 16),
        max_tool_calls: some(&mut dice, 1, 8),
        max_tokens: some(&mut dice, 1, 40_000),
        max_storage_bytes: dice.once_in(3).then(|| ((1 + dice.below(8)) << 23) as u64),
        ..Budgets::default()
    };
    MODELS.iter().fold(Setup { budgets, ..Setup::of(plan) }, |setup, node| setup.with(node, model()))
}

/// How an effect ends: the same whenever it is asked.
fn answer(seed: u64, key: &EffectKey) -> (EffectOutcome, Usage) {
    let mut dice = Dice::about(seed, &format!("{}/{}/{}", key.node, key.attempt, key.effect_seq));
    let completed = |output: String| EffectOutcome::Completed { output: Payload::new(output) };
    if key.node == "fails" && dice.once_in(2) {
        let failure = Failure::permanent(FailureCause::ExecutorError, "it broke");
        return (EffectOutcome::Failed { failure }, Usage::default());
    }
    if key.kind == EffectKind::Tool {
        return (completed("{}".to_owned()), Usage::default());
    }
    let usage = Usage { tokens: dice.below(5000) as u64, ..Usage::default() };
    let said = match dice.below(3) {
        0 => json!({"content": json!({&*key.node: key.effect_seq}).to_string()}),
        _ => json!({"content": "", "tool_calls": [{"id": "c", "name": "work", "arguments": "{}"}]}),
    };
    (completed(said.to_string()), usage)
}

/// Settles the first in flight, or a drawn one, perhaps over crashes.
fn driven(seed: u64, mut chance: Option<Dice>) -> Sim {
    let mut sim = setup(seed).start();
    let mut crashes = 4;
    while sim.state.outcome().is_none() {
        if let Some(dice) = &mut chance
            && crashes > 0
            && dice.once_in(6)
        {
            crashes -= 1;
            sim = sim.reopen(sim.entries.len());
            let fence = sim.state.fence() + 1;
            sim.feed_now(Input::TakeOver { holder: "user:runner@node-1/abc".to_owned(), fence });
            continue;
        }
        let keys: Vec<EffectKey> = sim.state.flights().map(|flight| flight.key.clone()).collect();
        let key = keys[chance.as_mut().map_or(0, |dice| dice.below(keys.len()))].clone();
        let (outcome, usage) = answer(seed, &key);
        assert_eq!(sim.feed_now(Input::Result { key, outcome, usage }).declined, None);
    }
    let verdict = sim.verify();
    assert!(verdict.is_clean(), "{:?}", verdict.divergence);
    sim
}

/// What must depend on neither order nor crashes: the end, the closes, the effects, what was spent.
fn essence(sim: &Sim) -> (String, Vec<String>, Vec<String>, [u64; 4]) {
    let of = |wanted: fn(&Event) -> Option<String>| -> Vec<String> {
        let mut found: Vec<String> = sim.entries.iter().filter_map(|entry| wanted(entry.event())).collect();
        found.sort();
        found
    };
    let closes = of(|event| matches!(event, Event::SuperstepClosed { .. }).then(|| event.to_json()));
    let intents = of(|event| matches!(event, Event::IntentRecorded { .. }).then(|| event.to_json()));
    let spent = sim.state.spent();
    (sim.outcome().reason(), closes, intents, [spent.effects, spent.tool_calls, spent.tokens, spent.supersteps])
}

#[test]
fn loops_side_by_side_share_budgets_in_the_same_way_whoever_is_answered_first_and_wherever_a_process_dies() {
    let ends = Mutex::new(BTreeMap::<String, u32>::new());
    dice::play(CASES, |seed| {
        let whole = driven(seed, None);
        let (budgets, spent) = (setup(seed).budgets, whole.state.spent());
        assert!(budgets.max_effects.is_none_or(|max| spent.effects <= max), "{seed}: {spent:?} of {budgets:?}");
        assert!(budgets.max_tool_calls.is_none_or(|max| spent.tool_calls <= max), "{seed}: {spent:?} of {budgets:?}");
        assert!(whole.count("SuperstepOpened") <= 2, "{seed}: a loop that is stopped stops the run");
        for order in ["one", "another", "a third"] {
            let other = driven(seed, Some(Dice::about(seed, order)));
            assert_eq!(essence(&other), essence(&whole), "{order} order of {seed} under {budgets:?}");
        }
        let end = whole.outcome().reason();
        *ends.lock().unwrap().entry(end.split(' ').take(3).collect::<Vec<_>>().join(" ")).or_default() += 1;
    });
    println!("ends: {:?}", ends.lock().unwrap());
}
