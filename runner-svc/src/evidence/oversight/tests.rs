//! The report over golden journals says what their events say, value by value.

use std::{collections::BTreeMap, fs, path::Path};

use runner_core::{payload::Payload, verify::Replay};
use serde_json::{Value, json};

use super::*;

/// The report over a journal, and its events as JSON.
fn reported(path: &Path) -> (Value, Vec<Value>) {
    let text = fs::read_to_string(path).unwrap();
    let texts = text.lines().filter_map(|line| line.strip_prefix("  ")).map(Payload::new);
    let texts: BTreeMap<Digest, Payload> = texts.map(|text| (text.digest(), text)).collect();
    let (mut replay, mut oversight, mut events) = (Replay::new(), Oversight::default(), Vec::new());
    for record in text.lines().filter(|line| !line.starts_with("  ")) {
        let entry = Entry::open(record.as_bytes().to_vec(), |named| texts.get(&named.digest).cloned().ok_or("missing"));
        let entry = entry.unwrap();
        replay.push(&entry);
        oversight.take(&entry, replay.state().unwrap());
        events.push(serde_json::from_str(record).unwrap());
    }
    let report = oversight.report(replay.state().unwrap(), Vec::new(), Vec::new());
    (serde_json::to_value(report).unwrap(), events)
}

#[test]
fn drained_time_takeovers_refused_calls_and_pauses_are_those_of_the_journal() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("core/tests/golden");
    let mut met: BTreeMap<&str, usize> = BTreeMap::new();
    for path in fs::read_dir(folder).unwrap().map(|file| file.unwrap().path()) {
        let (report, events) = reported(&path);
        let of = |kind: &str| events.iter().filter(|event| event["event"]["type"] == kind).collect::<Vec<_>>();
        let case = path.display();
        if let Some(cancel) = of("CancelRequested").first() {
            let end = of("RunFinished").first().and_then(|end| end["at_ms"].as_u64());
            let drained = end.map(|end| end - cancel["at_ms"].as_u64().unwrap());
            assert_eq!(report["cancel"]["drained_ms"], json!(drained), "{case}");
            assert_eq!(report["cancel"]["by"], cancel["event"]["by"], "{case}");
            *met.entry("drained").or_default() += usize::from(drained > Some(0));
        }
        let taken = of("LeaseTaken");
        let expected = taken.iter().map(|event| {
            json!({"holder": event["event"]["holder"], "fence": event["event"]["fence"], "at_ms": event["at_ms"]})
        });
        assert_eq!(report["takeovers"], Value::from_iter(expected), "{case}");
        let refused = of("EgressRefused").len()
            + of("ExchangeRecorded").iter().filter(|event| event["event"]["exchange"]["refused"] == true).count();
        assert_eq!(report["egress_refusals"].as_array().unwrap().len(), refused, "{case}");
        let is_control =
            |event: &&Value| event["event"]["type"] == "PauseRequested" || event["event"]["type"] == "Resumed";
        let controls = events
            .iter()
            .filter(is_control)
            .map(|event| json!({"what": event["event"]["type"], "by": event["event"]["by"], "at_ms": event["at_ms"]}));
        assert_eq!(report["pauses"], Value::from_iter(controls), "{case}");
        *met.entry("takeovers").or_default() += taken.len();
        *met.entry("refusals").or_default() += refused;
        *met.entry("pauses").or_default() += report["pauses"].as_array().unwrap().len();
    }
    assert!(met.len() == 4 && met.values().all(|count| *count > 0), "the journals hold some of each: {met:?}");
}
