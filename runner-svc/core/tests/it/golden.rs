//! Journals, kept as text: each must decode, verify, and be written the same way for good.
//!
//! `RENEW_GOLDENS=1 cargo test -p runner-core golden` writes those anew that are not there. What a release wrote stays.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
    path::PathBuf,
    sync::{Mutex, PoisonError},
};

use content_digest::Digest;
use runner_core::{
    budget::Budgets,
    entry::Entry,
    event::{Event, Exchange, Recorded},
    input::Input,
    manifest::{NodePolicy, OnDangling},
    outcome::{EffectOutcome, FailureCause, Usage},
    owed::next_tick_ms,
    payload::Payload,
    pinned::Executor,
    retry::Backoff,
    run,
};
use serde_json::json;

use crate::{
    fork::{closed, fork},
    models::thinking,
    sim::{Setup, Sim, T0, verify, wasm, wasm_io},
};

/// A run by the rules of the releases whose effects reserve no journal.
fn before(plan: serde_json::Value) -> Setup {
    Setup { reserves_storage: false, ..Setup::of(plan) }
}

/// A run that meets nearly every kind of event.
fn run_of_every_kind() -> Sim {
    let plan = json!({
        "nodes": ["fetch", "draft", "review", "approve", "send"],
        "edges": [{"src": "fetch", "dst": "draft"}, {"src": "draft", "dst": "review"},
                  {"src": "review", "dst": "draft", "cond": "verdict == \"redo\"", "max_cycles": 2},
                  {"src": "review", "dst": "approve", "cond": "verdict != \"redo\""},
                  {"src": "approve", "dst": "send", "cond": "ok"}],
        "retries": {"draft": 1}, "reducers": {"log": "append"}
    });
    let slow = NodePolicy { timeout_ms: Some(5000), backoff: None };
    let setup = Setup {
        input: r#"{"amount": 9007199254740993}"#,
        ask_ttl_ms: Some(86_400_000),
        policies: BTreeMap::from([("slow".to_owned(), slow)]),
        wave_effects_max: None,
        ..before(plan)
    };
    let setup = setup.with("fetch", wasm_io()).with("draft", wasm()).with("approve", Executor::Person);
    let mut sim = setup.start();
    let key = sim.key("fetch");
    let response = Payload::new(r#"{"status":200,"body":"hello"}"#);
    let record = Some(Payload::new(r#"{"host":"api.example.com","status":200}"#));
    let exchange =
        Exchange { ordinal: 0, request: Digest::of("request"), response, record, refused: false, blobs: Vec::new() };
    sim.feed(Input::Exchange { key, exchange });
    sim.take_over();
    let output = Payload::new(r#"{"log": "fetched", "rate": 1.10}"#);
    sim.settle(
        "fetch",
        EffectOutcome::Completed { output },
        Usage { fuel: 4711, duration_ms: 12, peak_memory_bytes: 65_536, ..Usage::default() },
    );
    sim.fail("draft", FailureCause::Timeout);
    sim.done("draft", r#"{"log": ["drafted"]}"#);
    sim.done("review", r#"{"verdict": "redo"}"#);
    sim.done("draft", r#"{"log": ["drafted again"]}"#);
    let key = sim.key("review");
    sim.feed(Input::Egress { key: key.clone(), refused: true, record: Payload::new(r#"{"host":"evil.example"}"#) });
    sim.feed(Input::Egress { key, refused: false, record: Payload::new(r#"{"host":"api.example.com"}"#) });
    sim.done("review", r#"{"verdict": "good"}"#);
    sim.answer("user:runner", r#"{"ok":true}"#);
    sim.answer("user:bea", r#"{"ok":true}"#);
    sim.cancel();
    sim.done("send", "null");
    sim
}

/// Waves, tasks of tasks, delays, a late result, a module that ran into the budget's end.
fn run_of_waves() -> Sim {
    let plan = json!({
        "nodes": ["split", "work", "more", "join"],
        "edges": [{"src": "split", "dst": "work"}, {"src": "split", "dst": "more", "cond": "never"},
                  {"src": "work", "dst": "join"}, {"src": "more", "dst": "join"}],
        "retries": {"work": 2}, "reducers": {"log": "append"}
    });
    let backoff = Backoff { initial_ms: 1000, factor_milli: 1500, max_ms: 60_000, jitter_milli: 250 };
    let policy = NodePolicy { timeout_ms: Some(5000), backoff: Some(backoff) };
    let setup = Setup {
        policies: BTreeMap::from([("work".to_owned(), policy)]),
        locked: BTreeMap::from([("more".to_owned(), json!({"to": "alice"}))]),
        budgets: Budgets { max_fuel: Some(300_000_000), max_wall_ms: Some(3_600_000), ..Budgets::default() },
        wave_effects_max: Some(2),
        ..before(plan)
    };
    let mut sim = setup.with("join", wasm()).start();
    let send = |node: &str, n: u64| json!({"node": node, "input": {"n": n, "to": "mallory"}});
    sim.done("split", json!({"$send": [send("work", 9_007_199_254_740_993), send("work", 1), send("work", 2)]}));
    let first = sim.key("work");
    sim.fail("work", FailureCause::Timeout);
    let late = EffectOutcome::Completed { output: Payload::new("{}") };
    sim.feed(Input::Result { key: first, outcome: late, usage: Usage { fuel: 5, ..Usage::default() } });
    sim.done("work", json!({"log": "one", "$send": [send("more", 3)]}));
    sim.done("work", json!({"log": "two"}));
    sim.take_over();
    sim.done("more", json!({"log": "three"}));
    sim.now = next_tick_ms(&sim.state).unwrap();
    sim.feed_now(Input::Tick);
    sim.done("work", json!({"log": "zero"}));
    let usage = Usage { fuel: 200_000_000, tokens: 7, usd_micros: 9, ..Usage::default() };
    sim.settle("join", EffectOutcome::Completed { output: Payload::new("null") }, usage);
    sim
}

/// A run with a subgraph, over a crash of its parent.
fn run_of_children() -> Sim {
    let plan = json!({"nodes": ["first", "sub", "last"],
        "edges": [{"src": "first", "dst": "sub"}, {"src": "sub", "dst": "last"}]});
    let mut sim = before(plan).with_subgraph("sub", json!({"nodes": ["inner"]})).start();
    sim.done("first", json!({"n": 9_007_199_254_740_993_u64}));
    let mut child = sim.start_child("sub");
    sim.take_over();
    child.done("inner", json!({"from_child": 1}));
    sim.child_ended("sub", &child);
    sim.done("last", "null");
    sim
}

/// A pause and its end, an executor that was lost, a person who decides what becomes of it, an input that does not fit.
fn run_of_doubts() -> Sim {
    let plan = json!({"nodes": ["a", "b", "c"], "edges": [{"src": "a", "dst": "b"}, {"src": "b", "dst": "c"}]});
    let mut setup = Setup { on_dangling: OnDangling::Ask, ask_ttl_ms: Some(60_000), ..before(plan) };
    setup.input_schemas.insert("c", json!({"type": "object", "required": ["amount"]}));
    let mut sim = setup.start();
    sim.feed(Input::Pause { by: "user:boss".to_owned() });
    sim.done("a", json!({"n": 9_007_199_254_740_993_u64}));
    sim.feed(Input::Resume { by: "user:bea".to_owned() });
    let lost = Input::Lost { key: sim.key("b"), why: "the sandbox at 10.0.0.7 is gone".to_owned() };
    sim.feed(lost);
    sim.answer("user:runner", r#"{"decision":"redispatch"}"#);
    sim.answer("user:bea", r#"{"decision":"redispatch"}"#);
    sim.take_over();
    sim.answer("user:bea", r#"{"decision":"result","result":{"b":1.10}}"#);
    sim
}

/// A cancel with an effect in flight beside a question, and tokens that die before the run ends.
fn run_that_is_canceled() -> Sim {
    let edges = json!([{"src": "a", "dst": "b"}, {"src": "a", "dst": "ask"}]);
    let mut sim = before(json!({"nodes": ["a", "b", "ask"], "edges": edges})).with("ask", Executor::Person).start();
    sim.done("a", "{}");
    sim.cancel();
    sim.fail("b", FailureCause::UserAborted);
    sim
}

/// A fork behind the second superstep, with more to spend.
fn run_that_is_a_fork() -> Sim {
    let edges = json!([{"src": "a", "dst": "b"}, {"src": "b", "dst": "c"}]);
    let budgets = Budgets { max_effects: Some(2), ..Budgets::default() };
    let setup = Setup { budgets, ..before(json!({"nodes": ["a", "b", "c"], "edges": edges})) };
    let mut sim = setup.start();
    sim.done("a", r#"{"a": 9007199254740993}"#);
    sim.done("b", r#"{"b": 1.10}"#);
    let mut forked = fork(&sim, closed(&sim, 2), |manifest| manifest.budgets.max_effects = Some(9));
    forked.done("c", "null");
    forked
}

/// A model that calls a tool twice, the second time as it must not, is corrected, and ends with the node's result.
fn run_that_thinks() -> Sim {
    let budgets = Budgets { max_tokens: Some(100_000), ..Budgets::default() };
    let mut sim = Setup { budgets, reserves_storage: false, ..thinking() }.start();
    let calling =
        |name: &str| json!({"content": "", "tool_calls": [{"id": "c1", "name": name, "arguments": "{\"n\":1}"}]});
    let key = sim.key("think");
    let response = Payload::new(r#"{"status":200,"body":"a model's words"}"#);
    let exchange = Exchange {
        ordinal: 0,
        request: Digest::of("question"),
        response,
        record: None,
        refused: false,
        blobs: Vec::new(),
    };
    sim.feed(Input::Exchange { key, exchange });
    let usage = Usage { tokens: 70, usd_micros: 9, ..Usage::default() };
    sim.settle("think", EffectOutcome::Completed { output: Payload::new(calling("work").to_string()) }, usage);
    sim.fail("think", FailureCause::Timeout);
    sim.done("think", calling("rm"));
    sim.take_over();
    sim.done("think", json!({"content": "{\"answer\": 9007199254740993}"}));
    sim.done("after", "{}");
    sim
}

/// Effects that reserve what they may write: the first alone with what is left, a child run with its share of that, the last
/// not at all.
fn run_that_writes_much() -> Sim {
    let edges = json!([{"src": "a", "dst": "b"}, {"src": "a", "dst": "sub"}, {"src": "a", "dst": "c"}]);
    let budgets = Budgets { max_storage_bytes: Some(9_000_000), ..Budgets::default() };
    let plan = json!({"nodes": ["a", "b", "sub", "c"], "edges": edges});
    let setup = Setup { budgets, ..Setup::of(plan) }.with_subgraph("sub", json!({"nodes": ["inner"]}));
    let mut sim = setup.start();
    sim.done("a", "{}");
    sim.done("b", json!({"b": 9_007_199_254_740_993_u64}));
    let mut child = sim.start_child("sub");
    child.done("inner", json!({"inner": 1.10}));
    sim.take_over();
    sim.child_ended("sub", &child);
    sim.done("c", "{}");
    sim
}

/// A question of a child run, whose answer ends both.
fn family_that_asks() -> [Sim; 2] {
    let plan = json!({"nodes": ["sub", "last"], "edges": [{"src": "sub", "dst": "last"}]});
    let setup = Setup { ask_ttl_ms: Some(60_000), initiator: Some("user:ann"), ..before(plan) };
    let inner = json!({"nodes": ["approve"]});
    let mut sim = setup.with_subgraph("sub", inner).with("approve", Executor::Person).start();
    let mut child = sim.start_child("sub");
    // As the release said it that wrote this journal; today's words say on whose behalf.
    let reason = "user:ann started the run and cannot answer its asks: someone else has to".to_owned();
    let event = Event::AskRejected { key: child.key("approve"), by: "user:ann".to_owned(), reason };
    child.now += 1;
    let (sequence, at_ms, previous) = (child.state.events(), child.now, child.state.head());
    let entry = Entry::seal(Recorded { sequence, at_ms, previous, event });
    child.state.apply(&entry).unwrap();
    child.entries.push(entry);
    child.answer("user:bea", r#"{"ok":true}"#);
    sim.take_over();
    sim.child_ended("sub", &child);
    sim.done("last", "null");
    [sim, child]
}

/// Every golden journal and how it is made today.
fn goldens() -> Vec<(&'static str, Sim)> {
    let [asking, asked] = family_that_asks();
    vec![
        ("release-0.1", run_of_every_kind()),
        ("waves", run_of_waves()),
        ("children", run_of_children()),
        ("doubts", run_of_doubts()),
        ("canceled", run_that_is_canceled()),
        ("forked", run_that_is_a_fork()),
        ("thinking", run_that_thinks()),
        ("asking-parent", asking),
        ("asking-child", asked),
        ("reserving", run_that_writes_much()),
    ]
}

/// Every kind of event, as the golden journals have to have it.
const KINDS: [&str; 22] = [
    "RunStarted",
    "SuperstepOpened",
    "IntentRecorded",
    "InputRefused",
    "ExchangeRecorded",
    "ResultRecorded",
    "ResultDiscarded",
    "EffectLost",
    "AskRaised",
    "AskAnswered",
    "AskRejected",
    "RetryScheduled",
    "SuperstepClosed",
    "CancelRequested",
    "TokensRevoked",
    "PauseRequested",
    "Resumed",
    "Redelivered",
    "EgressRefused",
    "EgressCalled",
    "LeaseTaken",
    "RunFinished",
];

#[test]
fn the_golden_journals_have_every_kind_of_event_and_every_kind_of_effect() {
    let goldens = goldens();
    let entries = || goldens.iter().flat_map(|(_, sim)| &sim.entries);
    let kinds: BTreeSet<&str> = entries().map(|entry| entry.event().kind()).collect();
    assert_eq!(kinds, BTreeSet::from(KINDS));
    let effects: BTreeSet<&str> =
        entries().filter_map(|entry| entry.event().key()).map(|key| key.kind.as_str()).collect();
    assert_eq!(effects, BTreeSet::from(["ask", "llm", "subgraph", "tool"]));
    for (name, sim) in &goldens {
        assert!(sim.state.outcome().is_some(), "{name} has no end");
    }
}

/// A golden's text; one that is missing is written when that is asked for, whole and by one test at a time.
fn stored(name: &str, sim: &Sim) -> String {
    static WRITING: Mutex<()> = Mutex::new(());
    let _one_at_a_time = WRITING.lock().unwrap_or_else(PoisonError::into_inner);
    if std::env::var_os("RENEW_GOLDENS").is_some() && !path(name).exists() {
        let unfinished = path(name).with_extension("new");
        std::fs::write(&unfinished, written(&sim.entries)).unwrap();
        std::fs::rename(unfinished, path(name)).unwrap();
    }
    std::fs::read_to_string(path(name)).unwrap()
}

fn path(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(format!("tests/golden/{name}.journal"))
}

/// One line a record, its payloads indented below it.
fn written(entries: &[Entry]) -> String {
    let mut text = String::new();
    for entry in entries {
        writeln!(text, "{}", std::str::from_utf8(entry.record()).unwrap()).unwrap();
        for payload in entry.payloads() {
            writeln!(text, "  {}", payload.text()).unwrap();
        }
    }
    text
}

fn read(text: &str) -> Vec<Entry> {
    let payloads: BTreeMap<Digest, Payload> =
        text.lines().filter_map(|line| line.strip_prefix("  ")).map(Payload::new).map(|p| (p.digest(), p)).collect();
    let records = text.lines().filter(|line| !line.starts_with("  "));
    records
        .map(|record| {
            Entry::open(record.as_bytes().to_vec(), |named| payloads.get(&named.digest).cloned().ok_or("missing"))
        })
        .map(Result::unwrap)
        .collect()
}

#[test]
fn the_golden_journals_are_written_the_same_way_today() {
    for (name, sim) in goldens() {
        let (golden, today) = (stored(name, &sim), written(&sim.entries));
        for (line, (golden, today)) in golden.lines().zip(today.lines()).enumerate() {
            assert_eq!(golden, today, "{name}, line {}", line + 1);
        }
        assert_eq!(golden.lines().count(), today.lines().count(), "{name}");
    }
}

#[test]
fn every_golden_journal_verifies_and_folds_to_what_is_made_today() {
    for (name, sim) in goldens() {
        let entries = read(&stored(name, &sim));
        let verdict = verify(&entries);
        assert!(verdict.is_clean(), "{name}: {:?}", verdict.divergence);
        let state = run::fold(&entries).unwrap();
        assert_eq!((state.document(), state.spent()), (sim.state.document(), sim.state.spent()), "{name}");
        assert_eq!(state.outcome(), sim.state.outcome(), "{name}");
    }
}

#[test]
fn the_golden_journal_decodes_folds_and_verifies() {
    let entries = read(&std::fs::read_to_string(path("release-0.1")).unwrap());
    let verdict = verify(&entries);
    assert!(verdict.is_clean(), "{:?}", verdict.divergence);
    let state = run::fold(&entries).unwrap();
    assert_eq!(state.started_at_ms(), T0);
    assert_eq!(
        state.document().text(),
        r#"{"amount":9007199254740993,"log":["fetched","drafted","drafted again"],"ok":true,"rate":1.10,"verdict":"good"}"#
    );
    assert_eq!(state.outcome().unwrap().reason(), "RUN-E013: canceled by user:boss: enough");
}
