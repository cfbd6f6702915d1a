//! A run's effect as a grain: the same as one that is authored by hand, and readable.

use runner_svc::catalogue::grain::{Execution, ExecutionStatus, Grain, GrainType, author};
use serde_json::{Map, Value, json};

use crate::vectors::{list, text};

fn execution<'a>(status: ExecutionStatus, input: Option<&'a Value>, definition: Option<&'a str>) -> Execution<'a> {
    Execution {
        namespace: "ops",
        created_at_ms: 1_700_000_000_000,
        tool_name: "fetch",
        tool_call_id: "1111111111111111111111111111111111111111111111111111111111111111",
        input,
        status,
        definition_hash: definition,
        plan_hash: definition.map(|_| "3333333333333333333333333333333333333333333333333333333333333333"),
        node: "fetch",
        author: None,
        facts: facts(),
    }
}

fn facts() -> Map<String, Value> {
    let Value::Object(facts) = json!({"run_id": "r-1", "task_path": "", "attempt": 0, "effect_seq": 0, "superstep": 1,
        "effect_kind": "tool", "absent": null})
    else {
        panic!("an object")
    };
    facts
}

#[test]
fn an_intent_has_the_bytes_of_the_published_one() {
    let vectors = list("grains.json", "vectors");
    let intent = vectors.iter().find(|vector| text(vector, "name") == "tool-exec/journal-intent").unwrap();
    let input = json!({"state": {"n": 1}});
    let definition = "2222222222222222222222222222222222222222222222222222222222222222";
    let grain = execution(ExecutionStatus::Pending, Some(&input), Some(definition)).seal().unwrap();
    assert_eq!(hex::encode(grain.bytes()), text(intent, "blob_hex"));
    assert_eq!(grain.hash().to_hex(), text(intent, "hash_hex"));
}

#[test]
fn a_result_and_a_failure_read_back_as_what_they_say() {
    let completed = ExecutionStatus::Completed { content: "{\"n\":9007199254740993}".to_owned() };
    let failed =
        ExecutionStatus::Failed { cause: "executor_error".to_owned(), detail: "no credential broker".to_owned() };
    for (status, expected) in [
        (completed, json!({"status": "completed", "is_error": false, "tool_content": "{\"n\":9007199254740993}"})),
        (
            failed,
            json!({"status": "failed", "is_error": true, "failure_cause": "executor_error",
                "failure_detail": "no credential broker"}),
        ),
    ] {
        let grain = execution(status, None, None).seal().unwrap();
        let read = Grain::decode(grain.bytes().to_vec()).unwrap();
        let mut wanted = json!({"type": "tool", "namespace": "ops", "confidence": 1.0, "node": "fetch",
            "created_at": 1_700_000_000_000_i64, "tool_name": "fetch", "tool_call_id": "11".repeat(32)});
        let wanted = wanted.as_object_mut().unwrap();
        wanted.extend(expected.as_object().unwrap().clone());
        wanted.extend(facts().into_iter().filter(|(_, value)| !value.is_null()));
        assert_eq!(Value::Object(read.fields()), Value::Object(wanted.clone()));
        assert!(!read.is_definition());
    }
}

#[test]
fn an_effect_of_an_unusual_node_is_written_all_the_same() {
    let input = Value::Null;
    let node = "e\u{301} \u{10000}".repeat(20);
    let grain = Execution { node: &node, ..execution(ExecutionStatus::Pending, Some(&input), Some("22")) };
    let grain = grain.seal().unwrap();
    Grain::decode(grain.bytes().to_vec()).unwrap();
    // What a person authors with the same words is the same grain.
    let document = json!({"tool_name": "t", "input": null, "created_at": 1, "node": node});
    let authored = author::from_json(GrainType::Tool, &document.to_string(), "ops", 0).unwrap();
    assert_eq!(grain.fields()["node"], authored.fields()["node"]);
}
