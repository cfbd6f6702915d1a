//! Subgraphs at start: every gate again for each plan below, told of the node that is bound to it; depth and number bounded.

use std::{
    collections::{BTreeMap, BTreeSet},
    convert::Infallible,
};

use content_digest::Digest;
use runner_core::{
    pinned::{EffectClass, NodeKind, SUBGRAPH_DEPTH_MAX, SUBGRAPH_RUNS_MAX},
    plan::Plan,
    refusal::Refusal,
    resolve::{Catalogue, Grain, HostProfile, Resolution, resolve},
};
use serde_json::{Value, json};

/// A catalogue of plans and definitions by invented addresses; a host with a tool command and nothing else.
#[derive(Default)]
struct Library {
    grains: BTreeMap<Digest, Grain>,
}

impl Library {
    fn plan(&mut self, name: &str, fields: Value) -> String {
        self.grain(name, "workflow", fields)
    }

    fn tool(&mut self, name: &str, fields: Value) -> String {
        let mut definition = json!({"kind": "definition", "tool_name": name});
        definition.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        self.grain(name, "tool", definition)
    }

    fn grain(&mut self, name: &str, grain_type: &str, fields: Value) -> String {
        self.grains.insert(Digest::of(name), Grain { grain_type: grain_type.to_owned(), fields });
        Digest::of(name).to_hex()
    }

    fn resolve(&self, plan: &Value) -> Resolution {
        let pins = BTreeSet::new();
        let host = HostProfile { pins: &pins, sandbox_url: false, sandbox_cmd: false, host_tool: true, model: None };
        resolve(Plan::from_fields(plan).unwrap().document(), self, &host).unwrap_or_else(|never| match never {})
    }

    fn refused(&self, plan: &Value) -> Refusal {
        self.resolve(plan).into_pinned().expect_err("the plan is refused")
    }
}

impl Catalogue for Library {
    type Error = Infallible;

    fn grain(&self, hash: &Digest) -> Result<Option<Grain>, Infallible> {
        Ok(self.grains.get(hash).cloned())
    }

    fn newest_definition(&self, tool_name: &str) -> Result<Option<Digest>, Infallible> {
        Ok(self.grains.contains_key(&Digest::of(tool_name)).then(|| Digest::of(tool_name)))
    }

    fn has_blob(&self, _: &Digest) -> Result<bool, Infallible> {
        Ok(false)
    }
}

/// The plan `outer`, whose only node is bound to `hash`.
fn outer(hash: &str) -> Value {
    json!({"nodes": ["outer"], "bindings": {"outer": hash}})
}

#[test]
fn a_node_bound_to_a_plan_is_a_subgraph_and_everything_below_is_pinned_once() {
    let mut library = Library::default();
    let tool = library.tool("work", json!({}));
    let leaf = library.plan(
        "leaf",
        json!({"nodes": ["a", "b"], "edges": [{"src": "a", "dst": "b"}], "bindings": {"a": tool, "b": tool}}),
    );
    let middle = library.plan("middle", json!({"nodes": ["x"], "bindings": {"x": leaf}}));
    let plan = json!({"nodes": ["m", "l"], "edges": [{"src": "m", "dst": "l"}], "bindings": {"m": middle, "l": leaf}});
    let pinned = library.resolve(&plan).into_pinned().unwrap();
    assert_eq!(pinned.nodes[0].tool.definition, Digest::of("middle"));
    for node in &pinned.nodes {
        assert_eq!((node.tool.kind(), node.tool.effect_class()), (NodeKind::Subgraph, Some(EffectClass::Child)));
    }
    assert_eq!(pinned.levels, 2);
    assert_eq!(pinned.plans.len(), 2, "the leaf is bound twice and pinned once");
    assert_eq!(pinned.plans[&Digest::of("leaf")].nodes.len(), 2);
}

#[test]
fn a_name_without_binding_in_a_plan_below_is_looked_up_and_pinned_too() {
    let mut library = Library::default();
    library.tool("work", json!({}));
    let inner = library.plan("inner", json!({"nodes": ["work"]}));
    let pinned = library.resolve(&outer(&inner)).into_pinned().unwrap();
    assert_eq!(pinned.plans[&Digest::of("inner")].nodes[0].tool.definition, Digest::of("work"));
}

#[test]
fn every_gate_holds_within_a_subgraph_and_its_refusal_names_the_outer_node() {
    let mut library = Library::default();
    let code = json!({"executor_uri": Digest::of("code").to_uri(), "runtime": "wasm32-areev"});
    let unpinned = library.tool("unpinned", code);
    let runtime = library.tool("runtime", json!({"runtime": "wasm32-areev"}));
    let cases = [
        (json!({"nodes": ["x"], "bindings": {"x": "no-hash"}}), "RUN-E004", "`no-hash`"),
        (json!({"nodes": ["x"], "bindings": {"x": Digest::of("absent").to_hex()}}), "RUN-E004", "not in the catalogue"),
        (json!({"nodes": []}), "RUN-E019", "no nodes"),
        (json!({"nodes": ["x"], "edges": [{"src": "x", "dst": "x", "cond": "= ="}]}), "RUN-E005", "does not parse"),
        (json!({"nodes": ["x", "y"]}), "RUN-E003", "`y`"),
        (json!({"nodes": ["x"], "edges": [{"src": "x", "dst": "x"}]}), "RUN-E002", "max_cycles"),
        (json!({"nodes": ["x"]}), "RUN-E006", "`x`"),
        (json!({"nodes": ["x"], "bindings": {"x": runtime}}), "RUN-E018", "executor_uri"),
        (json!({"nodes": ["x"], "bindings": {"x": unpinned}}), "RUN-E018", "--allow-executor"),
    ];
    for (inner, code, text) in cases {
        let hash = library.plan("inner", inner);
        let refusal = library.refused(&outer(&hash));
        assert_eq!((refusal.code.code(), refusal.node.as_deref()), (code, Some("outer")), "{refusal}");
        assert!(refusal.text.starts_with(&format!("node `outer` runs the plan {hash}: ")), "{refusal}");
        assert!(refusal.text.contains(text), "{text:?} is not in: {refusal}");
        let twice = library.plan("twice", json!({"nodes": ["middle"], "bindings": {"middle": hash}}));
        let refusal = library.refused(&outer(&twice));
        assert!(refusal.text.contains("node `outer`") && refusal.text.contains("node `middle`"), "{refusal}");
    }
}

#[test]
fn plans_nest_to_the_bound_and_no_deeper() {
    let mut library = Library::default();
    let mut hash = library.tool("work", json!({}));
    for level in 0..=SUBGRAPH_DEPTH_MAX {
        let plan = json!({"nodes": ["in"], "bindings": {"in": hash}});
        assert!(library.resolve(&plan).refusals.is_empty(), "{level} levels below are fine");
        hash = library.plan(&format!("level {level}"), plan);
    }
    let refusal = library.refused(&outer(&hash));
    assert_eq!(refusal.code.code(), "RUN-E019");
    assert!(refusal.text.contains("4 levels") && refusal.text.contains("flatten"), "{refusal}");
    // A plan that is met at a lower depth first is judged by its depth again.
    let both = json!({"nodes": ["low", "high"], "edges": [{"src": "low", "dst": "high"}],
                      "bindings": {"low": Digest::of("level 3").to_hex(), "high": Digest::of("level 4").to_hex()}});
    assert_eq!(library.refused(&both).node.as_deref(), Some("high"));
}

#[test]
fn the_number_of_child_runs_is_bounded_over_all_levels_without_walking_them_all() {
    let mut library = Library::default();
    let mut hash = library.tool("work", json!({}));
    let nodes: Vec<String> = (0..40).map(|n| format!("n{n}")).collect();
    let edges: Vec<Value> = nodes[1..].iter().map(|node| json!({"src": "n0", "dst": node})).collect();
    for level in 0..SUBGRAPH_DEPTH_MAX {
        let bindings: BTreeMap<&String, &String> = nodes.iter().map(|node| (node, &hash)).collect();
        hash = library.plan(&format!("level {level}"), json!({"nodes": nodes, "edges": edges, "bindings": bindings}));
    }
    let refusal = library.refused(&outer(&hash));
    assert_eq!(refusal.code.code(), "RUN-E019");
    assert!(refusal.text.contains(&format!("at most {SUBGRAPH_RUNS_MAX}")), "{refusal}");
}
