//! Structural checks of plans, in the order of their codes.

use runner_core::{plan::Plan, refusal::Refusal};
use serde_json::{Value, json};

fn refusals(fields: Value) -> Vec<Refusal> {
    Plan::from_fields(&fields).expect_err("the plan is refused")
}

fn codes(fields: Value) -> Vec<&'static str> {
    refusals(fields).iter().map(|refusal| refusal.code.code()).collect()
}

fn refused_as(fields: Value, code: &str, texts: &[&str]) {
    let shown = fields.to_string();
    let refusals = refusals(fields);
    assert_eq!(refusals[0].code.code(), code, "{shown}: {}", refusals[0]);
    for text in texts {
        assert!(refusals[0].text.contains(text), "{shown}: {}", refusals[0]);
    }
}

#[test]
fn a_plan_keeps_its_nodes_edges_retries_and_reducers() {
    let plan = Plan::from_fields(&json!({
        "nodes": ["a", "b"], "edges": [{"src": "a", "dst": "b", "cond": "ok == true", "max_cycles": 2}],
        "bindings": {"a": "00"}, "retries": {"b": 3}, "reducers": {"log": "append"},
        "name": "described", "namespace": "ops", "created_at": 600
    }))
    .unwrap();
    assert_eq!(plan.nodes(), ["a", "b"]);
    assert_eq!(plan.edges()[0].max_cycles, Some(2));
    assert_eq!((plan.retries_of("a"), plan.retries_of("b")), (0, 3));
    let again = serde_json::to_string(plan.document()).unwrap();
    assert_eq!(&serde_json::from_str::<runner_core::plan::PlanDocument>(&again).unwrap(), plan.document());
}

#[test]
fn a_plan_without_sound_nodes_is_refused_as_e019() {
    refused_as(json!({}), "RUN-E019", &["no nodes"]);
    refused_as(json!({"nodes": []}), "RUN-E019", &["no nodes"]);
    refused_as(json!([]), "RUN-E019", &["no object"]);
    refused_as(json!({"nodes": "a"}), "RUN-E019", &["`nodes` is no list"]);
    refused_as(json!({"nodes": ["a", 7]}), "RUN-E019", &["nodes[1]", "`7`"]);
    refused_as(json!({"nodes": ["a", " "]}), "RUN-E019", &["nodes[1] is blank"]);
    refused_as(json!({"nodes": ["a", "b", "a"]}), "RUN-E019", &["`a` is named twice"]);
    refused_as(json!({"nodes": ["a\n"]}), "RUN-E019", &["control character", "a\\n"]);
    refused_as(json!({"nodes": ["x".repeat(257)]}), "RUN-E019", &["257 bytes", "at most 256"]);
    assert!(Plan::from_fields(&json!({"nodes": ["x".repeat(256)]})).is_ok());
}

#[test]
fn references_to_unknown_nodes_and_unknown_reducers_are_refused_as_e019() {
    let edge = json!({"nodes": ["a"], "edges": [{"src": "a", "dst": "ghost"}]});
    refused_as(edge, "RUN-E019", &["`a -> ghost`", "node `ghost`"]);
    refused_as(json!({"nodes": ["a"], "bindings": {"ghost": "00"}}), "RUN-E019", &["binding", "`ghost`"]);
    refused_as(json!({"nodes": ["a"], "retries": {"ghost": 1}}), "RUN-E019", &["retry", "`ghost`"]);
    refused_as(json!({"nodes": ["a"], "retries": {"a": -1}}), "RUN-E019", &["`-1`"]);
    refused_as(json!({"nodes": ["a"], "reducers": {"k": "avg"}}), "RUN-E019", &["`\"avg\"`", "append"]);
    refused_as(json!({"nodes": ["a"], "edges": [{"src": "a"}]}), "RUN-E019", &["edges[0]", "`dst`"]);
    let cycles = json!({"nodes": ["a"], "edges": [{"src": "a", "dst": "a", "max_cycles": 1.5}]});
    refused_as(cycles, "RUN-E019", &["max_cycles", "1.5"]);
}

#[test]
fn a_condition_that_does_not_parse_is_refused_as_e005_naming_its_edge() {
    let plan = json!({"nodes": ["a", "b"], "edges": [{"src": "a", "dst": "b", "cond": "x = 1"}]});
    refused_as(plan, "RUN-E005", &["`a -> b`", "`x = 1`", "path == literal"]);
    let plan = json!({"nodes": ["a", "b"], "edges": [{"src": "a", "dst": "b", "cond": ""}]});
    refused_as(plan, "RUN-E005", &["it is empty"]);
}

#[test]
fn every_unreachable_node_is_named_in_e003() {
    let plan = json!({"nodes": ["a", "b", "c", "d"],
                      "edges": [{"src": "a", "dst": "b"}, {"src": "c", "dst": "d"}]});
    refused_as(plan, "RUN-E003", &["`a`", "`c`, `d`"]);
}

#[test]
fn a_cycle_needs_max_cycles_on_one_of_its_edges() {
    let cycle = |max_cycles: Value| {
        json!({"nodes": ["a", "b", "c"], "edges": [{"src": "a", "dst": "b"}, {"src": "b", "dst": "c"},
               {"src": "c", "dst": "b", "max_cycles": max_cycles}]})
    };
    refused_as(cycle(Value::Null), "RUN-E002", &["`b`, `c`", "max_cycles"]);
    assert!(Plan::from_fields(&cycle(json!(3))).is_ok());
    let forward =
        json!({"nodes": ["a", "b"], "edges": [{"src": "a", "dst": "b", "max_cycles": 1}, {"src": "b", "dst": "a"}]});
    assert!(Plan::from_fields(&forward).is_ok());
    refused_as(json!({"nodes": ["a"], "edges": [{"src": "a", "dst": "a"}]}), "RUN-E002", &["`a`"]);
}

#[test]
fn all_problems_come_at_once_in_the_order_of_a_start() {
    let plan = json!({"nodes": ["a", "b", "c"],
        "edges": [{"src": "a", "dst": "a"}, {"src": "a", "dst": "b", "cond": "?"}, {"src": "a", "dst": "b", "cond": "!"}]});
    assert_eq!(codes(plan), ["RUN-E005", "RUN-E005", "RUN-E003", "RUN-E002"]);
    let plan = json!({"nodes": ["a", "a", ""], "edges": [{"src": "a", "dst": "z", "cond": "?"}], "retries": {"q": 1}});
    assert_eq!(codes(plan), ["RUN-E019", "RUN-E019", "RUN-E019", "RUN-E019", "RUN-E005"]);
}

#[test]
fn a_very_deep_plan_is_checked_without_recursion() {
    let nodes: Vec<String> = (0..50_000).map(|n| format!("n{n}")).collect();
    let edges: Vec<Value> = nodes.windows(2).map(|pair| json!({"src": pair[0], "dst": pair[1]})).collect();
    assert!(Plan::from_fields(&json!({"nodes": nodes, "edges": edges})).is_ok());
}
