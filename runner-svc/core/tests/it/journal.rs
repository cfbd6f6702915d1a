//! Entries: what is in a record, what is beside it, and what does not decode.

use std::{collections::BTreeMap, convert::Infallible};

use content_digest::Digest;
use runner_core::{
    entry::{BadEntry, Entry},
    event::{Event, Fired},
    payload::Payload,
    pinned::EffectClass,
};
use serde_json::{Value, json};

use crate::sim::{Setup, Sim, reread, wasm};

fn finished() -> Sim {
    let mut sim = Setup::default().start();
    sim.done("work", json!({"secretly": "large"}));
    sim
}

#[test]
fn records_name_payloads_and_do_not_hold_them() {
    let sim = finished();
    let result = sim.entries.iter().find(|entry| entry.event().kind() == "ResultRecorded").unwrap();
    let record: Value = serde_json::from_slice(result.record()).unwrap();
    let output = &record["event"]["outcome"]["output"];
    assert_eq!(output["digest"], json!(Digest::of(r#"{"secretly":"large"}"#)));
    assert_eq!(output["bytes"], json!(20));
    assert!(!String::from_utf8_lossy(result.record()).contains("secretly"));
    assert_eq!(result.payloads(), [Payload::new(r#"{"secretly":"large"}"#)]);
}

#[test]
fn every_entry_comes_back_from_its_stored_form() {
    for entry in &finished().entries {
        assert_eq!(&reread(entry), entry);
        assert_eq!(entry.hash(), Digest::of(entry.record()));
    }
}

#[test]
fn the_chain_is_over_the_records() {
    let sim = finished();
    assert_eq!(sim.entries[0].recorded().previous, Digest::ZERO);
    for pair in sim.entries.windows(2) {
        assert_eq!(pair[1].recorded().previous, pair[0].hash());
    }
}

#[test]
fn a_payload_of_another_digest_or_length_is_refused() {
    let sim = finished();
    let entry = &sim.entries[0];
    let wrong = Entry::open(entry.record().to_vec(), |_| Ok::<_, Infallible>(Payload::new("{}")));
    assert!(matches!(wrong, Err(BadEntry::Payload { .. })));
    let missing = Entry::open(entry.record().to_vec(), |_| Err::<Payload, _>("gone"));
    assert!(matches!(missing, Err(BadEntry::Fetch("gone"))));
}

#[test]
fn bytes_that_are_no_record_never_panic() {
    let sim = finished();
    for entry in &sim.entries {
        let beside: BTreeMap<Digest, Payload> = entry.payloads().iter().map(|p| (p.digest(), p.clone())).collect();
        for at in 0..entry.record().len() {
            let mut bytes = entry.record().to_vec();
            bytes[at] ^= 1;
            let opened = Entry::open(bytes, |named| beside.get(&named.digest).cloned().ok_or(()));
            assert!(opened.is_err() || opened.is_ok_and(|opened| opened.hash() != entry.hash()));
        }
        assert!(Entry::open(entry.record()[..entry.record().len() - 1].to_vec(), |_| Err::<Payload, _>(())).is_err());
    }
    assert!(Entry::open(vec![b'['; 70_000], |_| Err::<Payload, _>(())).is_err());
}

#[test]
fn many_fired_edges_stand_beside_the_record() {
    assert!(matches!(Fired::new((0..128).collect()), Fired::Here(_)));
    let many = Fired::new((0..129).collect());
    assert!(matches!(&many, Fired::Beside(edges) if edges.text().starts_with("[0,1,2")));
}

#[test]
fn a_wide_run_keeps_its_records_small_and_verifies() {
    let leaves: Vec<String> = (0..500).map(|n| format!("leaf{n}")).collect();
    let nodes: Vec<&str> = ["root"].into_iter().chain(leaves.iter().map(String::as_str)).collect();
    let edges: Vec<Value> = leaves.iter().map(|leaf| json!({"src": "root", "dst": leaf})).collect();
    let mut sim = Setup::of(json!({"nodes": nodes, "edges": edges})).start();
    sim.done("root", "{}");
    for leaf in leaves.iter().rev() {
        sim.done(leaf, "{}");
    }
    sim.output();
    assert!(sim.entries.iter().all(|entry| entry.record().len() <= 1024));
    let reread: Vec<Entry> = sim.entries.iter().map(reread).collect();
    assert!(crate::sim::verify(&reread).is_clean());
}

#[test]
fn a_chain_of_a_thousand_nodes_takes_less_than_2_mb_of_journal() {
    let nodes: Vec<String> = (0..1000).map(|n| format!("n{n}")).collect();
    let edges: Vec<Value> = nodes.windows(2).map(|pair| json!({"src": pair[0], "dst": pair[1]})).collect();
    let bindings: BTreeMap<&String, String> =
        nodes.iter().map(|node| (node, Digest::of("definition").to_hex())).collect();
    let mut setup = Setup::of(json!({"nodes": nodes, "edges": edges, "bindings": bindings}));
    setup.executors = nodes.iter().map(|node| (node.clone(), wasm())).collect();
    let mut sim = setup.start();
    for (place, node) in nodes.iter().enumerate() {
        sim.done(node, json!({ node: place }));
    }
    sim.output();
    // The final state is stored once, with the run's end.
    let bytes: u64 = sim.entries.iter().map(Entry::stored_bytes).sum();
    assert!(bytes < 2_000_000, "{bytes} bytes");
    let verdict = sim.verify();
    assert!(verdict.is_clean());
    assert_eq!((verdict.events, verdict.head), (sim.entries.len() as u64, sim.state.head()));
}

#[test]
fn an_event_shows_its_key_flat_and_in_words() {
    let sim = Setup::default().with("work", wasm()).start();
    let Event::IntentRecorded { class, .. } = sim.last() else { panic!("an intent is last") };
    assert_eq!(*class, EffectClass::Pure);
    let digest = Digest::of("{}");
    assert_eq!(
        sim.last().to_json(),
        format!(
            r#"{{"type":"IntentRecorded","node":"work","attempt":1,"kind":"tool","input":"{digest}","class":"pure"}}"#
        )
    );
}
