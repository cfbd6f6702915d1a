//! Whatever the plan: any completion order and any crash lead to the same bytes, and every journal verifies.

use proptest::prelude::*;
use runner_core::{
    event::{Event, Exchange},
    input::Input,
    outcome::{EffectOutcome, Failure, FailureCause, RunOutcome, Usage},
    payload::Payload,
    pinned::Executor,
};
use serde_json::{Value, json};

use crate::sim::{Setup, Sim, native, wasm, wasm_io};

/// A plan and how its nodes behave, from a few numbers.
#[derive(Debug, Clone)]
struct Case {
    nodes: usize,
    /// For each node after the first: where its first in-edge comes from.
    parents: Vec<usize>,
    extra_edges: Vec<(usize, usize)>,
    back_edges: Vec<(usize, usize, u32)>,
    conditions: Vec<u8>,
    executors: Vec<u8>,
    retries: Vec<u32>,
    seed: u64,
}

fn case() -> impl Strategy<Value = Case> {
    (1_usize..8).prop_flat_map(|nodes| {
        (
            proptest::collection::vec(0_usize..nodes, nodes),
            proptest::collection::vec((0..nodes, 0..nodes), 0..5),
            proptest::collection::vec((0..nodes, 0..nodes, 0_u32..3), 0..3),
            proptest::collection::vec(0_u8..8, 20),
            proptest::collection::vec(0_u8..8, nodes),
            proptest::collection::vec(0_u32..3, nodes),
            any::<u64>(),
        )
            .prop_map(move |(parents, extra_edges, back_edges, conditions, executors, retries, seed)| Case {
                nodes,
                parents,
                extra_edges,
                back_edges,
                conditions,
                executors,
                retries,
                seed,
            })
    })
}

impl Case {
    fn setup(&self) -> Setup {
        let name = |node: usize| format!("n{node}");
        let mut ends: Vec<(usize, usize, Option<u32>)> = Vec::new();
        for node in 1..self.nodes {
            ends.push((self.parents[node] % node, node, None));
        }
        for (a, b) in &self.extra_edges {
            if a != b {
                ends.push((*a.min(b), *a.max(b), None));
            }
        }
        for (a, b, max_cycles) in &self.back_edges {
            ends.push((*a.max(b), *a.min(b), Some(*max_cycles)));
        }
        let edges: Vec<Value> = ends
            .iter()
            .zip(self.conditions.iter().cycle())
            .map(|((src, dst, max_cycles), condition)| {
                let mut edge = json!({"src": name(*src), "dst": name(*dst)});
                match condition {
                    0 => edge["cond"] = json!(format!("k{src} == 1")),
                    1 => edge["cond"] = json!(format!("!k{dst}")),
                    2 => edge["cond"] = json!(format!("k{src}")),
                    _ => {}
                }
                if let Some(max_cycles) = max_cycles {
                    edge["max_cycles"] = json!(max_cycles);
                }
                edge
            })
            .collect();
        let nodes: Vec<String> = (0..self.nodes).map(name).collect();
        let retries: serde_json::Map<String, Value> =
            nodes.iter().cloned().zip(self.retries.iter().map(|n| json!(n))).collect();
        let reducers = json!({"log": "append", "sum": "sum", "max": "max"});
        let mut setup = Setup::of(json!({"nodes": nodes, "edges": edges, "retries": retries, "reducers": reducers}));
        for (node, executor) in self.executors.iter().enumerate() {
            let executor = match executor {
                0 => wasm(),
                1 => wasm_io(),
                2 => native(),
                3 => Executor::Person,
                _ => Executor::HostTool,
            };
            setup = setup.with(&name(node), executor);
        }
        setup
    }

    /// What an attempt of a node gives: the same whenever it is asked.
    fn outcome(&self, node: &str, attempt: u32) -> EffectOutcome {
        let draw = mix(self.seed, node, attempt);
        let index = &node[1..];
        let output = match draw % 16 {
            0 => return EffectOutcome::Failed { failure: Failure::new(FailureCause::Timeout, "slow") },
            1 => return EffectOutcome::Failed { failure: Failure::new(FailureCause::ExecutorError, "broke") },
            2 if draw.is_multiple_of(7) => {
                return EffectOutcome::Failed { failure: Failure::new(FailureCause::Unknown, "who knows") };
            }
            3 => "null".to_owned(),
            4 => format!("[{draw}]"),
            _ => format!(
                r#"{{"k{index}":{},"log":"{node}/{attempt}","sum":{},"max":{}}}"#,
                draw % 3,
                draw % 1000,
                draw / 7
            ),
        };
        EffectOutcome::Completed { output: Payload::new(output) }
    }

    /// Settles effects until the run has ended; `pick` chooses which one is next.
    fn drive(&self, sim: &mut Sim, mut pick: impl FnMut(usize) -> usize) {
        while sim.state.outcome().is_none() {
            let keys: Vec<_> = sim.state.flights().map(|flight| flight.key.clone()).collect();
            assert!(!keys.is_empty(), "an unfinished run has something in flight");
            let key = keys[pick(keys.len()) % keys.len()].clone();
            let outcome = self.outcome(&key.node, key.attempt);
            let asks: Vec<_> =
                sim.state.asks().filter(|ask| ask.flight.key == key).map(|ask| ask.tool_call_id).collect();
            let input = match (asks.first(), outcome) {
                (None, outcome) => Input::Result { key, outcome, usage: Usage { fuel: 3, ..Usage::default() } },
                (Some(ask), EffectOutcome::Completed { output }) => {
                    Input::Answer { tool_call_id: *ask, by: "user:bea".to_owned(), answer: output, is_error: false }
                }
                (Some(ask), EffectOutcome::Failed { .. }) => Input::Answer {
                    tool_call_id: *ask,
                    by: "user:bea".to_owned(),
                    answer: Payload::new("null"),
                    is_error: true,
                },
            };
            assert_eq!(sim.feed(input).declined, None);
        }
    }
}

/// A few well-mixed bits; nothing here has to be secret.
fn mix(seed: u64, node: &str, attempt: u32) -> u64 {
    let text = format!("{seed}/{node}/{attempt}");
    let digest = content_digest::Digest::of(text);
    u64::from_be_bytes(digest.as_bytes()[..8].try_into().unwrap())
}

/// What must not depend on order or crashes: outcome, final state, and the state after every superstep.
fn essence(sim: &Sim) -> (RunOutcome, String, Vec<String>) {
    let closes = sim.entries.iter().filter_map(|entry| match entry.event() {
        Event::SuperstepClosed { .. } => Some(entry.event().to_json()),
        _ => None,
    });
    (sim.outcome().clone(), sim.state.document().text().to_owned(), closes.collect())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn any_completion_order_gives_the_same_bytes_and_a_clean_journal(case in case(), order in any::<u64>()) {
        let mut first = case.setup().start();
        case.drive(&mut first, |_| 0);
        let mut other = case.setup().start();
        let mut step = 0;
        case.drive(&mut other, |_| { step += 1; mix(order, "step", step) as usize });
        prop_assert_eq!(essence(&first), essence(&other));
        for sim in [&first, &other] {
            let verdict = sim.verify();
            prop_assert!(verdict.is_clean(), "{:?}", verdict.divergence);
            let folded = sim.reopen(sim.entries.len());
            prop_assert_eq!(folded.state.document(), sim.state.document());
            prop_assert_eq!(folded.state.spent(), sim.state.spent());
        }
    }

    #[test]
    fn a_crash_after_any_event_leads_to_the_same_bytes_and_a_clean_journal(case in case()) {
        let mut whole = case.setup().start();
        case.drive(&mut whole, |_| 0);
        for cut in 1..whole.entries.len() {
            let mut sim = whole.reopen(cut);
            sim.take_over();
            case.drive(&mut sim, |_| 0);
            prop_assert_eq!(essence(&sim), essence(&whole), "cut at {}", cut);
            let verdict = sim.verify();
            prop_assert!(verdict.is_clean(), "cut at {}: {:?}", cut, verdict.divergence);
        }
    }

    #[test]
    fn a_cancel_at_any_time_gives_exactly_one_end(case in case(), at in 0_usize..40) {
        let mut sim = case.setup().start();
        for _ in 0..at {
            if sim.state.outcome().is_some() {
                break;
            }
            let mut once = false;
            let key = sim.state.flights().next().map(|flight| flight.key.clone()).unwrap();
            if sim.state.asks().all(|ask| ask.flight.key != key) {
                let outcome = case.outcome(&key.node, key.attempt);
                sim.feed(Input::Result { key, outcome, usage: Usage::default() });
                once = true;
            }
            if !once {
                break;
            }
        }
        let finished = sim.state.outcome().is_some();
        let intents = sim.count("IntentRecorded");
        prop_assert_eq!(sim.cancel().declined.is_some(), finished);
        let keys: Vec<_> = sim.state.flights().map(|flight| flight.key.clone()).collect();
        for key in keys {
            let outcome = EffectOutcome::Failed { failure: Failure::new(FailureCause::UserAborted, "stopped") };
            sim.feed(Input::Result { key, outcome, usage: Usage::default() });
        }
        prop_assert_eq!(sim.count("RunFinished"), 1);
        prop_assert_eq!(sim.count("IntentRecorded"), intents);
        prop_assert!(sim.verify().is_clean());
    }

    #[test]
    fn exchanges_in_order_are_kept_and_others_change_nothing(ordinals in proptest::collection::vec(0_u32..4, 0..8)) {
        let mut sim = Setup::default().with("work", wasm_io()).start();
        let key = sim.key("work");
        let mut kept = 0;
        for ordinal in ordinals {
            let (request, response) = (content_digest::Digest::of("q"), Payload::new("{}"));
            let exchange = Exchange { ordinal, request, response, record: None, refused: false };
            let fed = sim.feed(Input::Exchange { key: key.clone(), exchange });
            prop_assert_eq!(fed.declined.is_none(), ordinal == kept);
            kept += u32::from(ordinal == kept);
        }
        prop_assert_eq!(sim.state.spent().egress_calls, u64::from(kept));
        prop_assert!(sim.verify().is_clean());
    }
}
