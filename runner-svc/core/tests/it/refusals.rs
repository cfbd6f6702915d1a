//! Every gate of resolution, by code and by what its text says, in the order of a start.

use std::{
    collections::{BTreeMap, BTreeSet},
    convert::Infallible,
};

use content_digest::Digest;
use runner_core::{
    pinned::{EffectClass, Executor, NodeKind, Runtime},
    plan::Plan,
    refusal::Refusal,
    resolve::{Catalogue, Grain, HostProfile, Resolution, resolve},
};
use serde_json::{Value, json};

/// A catalogue with the definition `work` and one blob; a host with nothing.
struct Host {
    grains: BTreeMap<Digest, Grain>,
    names: BTreeMap<String, Digest>,
    blobs: BTreeSet<Digest>,
    pins: BTreeSet<Digest>,
    sandbox_url: bool,
    sandbox_cmd: bool,
    host_tool: bool,
    plan: Value,
}

fn blob() -> Digest {
    Digest::of("#!/bin/sh")
}

fn bound() -> Digest {
    Digest::of("bound")
}

impl Host {
    /// One node `work` bound to a definition with these fields besides name and kind.
    fn new(fields: Value) -> Self {
        let mut definition = json!({"type": "tool", "kind": "definition", "tool_name": "work"});
        definition.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        Self::with_grain(Grain { grain_type: "tool".to_owned(), fields: definition })
    }

    fn with_grain(grain: Grain) -> Self {
        Self {
            grains: BTreeMap::from([(bound(), grain)]),
            names: BTreeMap::new(),
            blobs: BTreeSet::from([blob()]),
            pins: BTreeSet::new(),
            sandbox_url: false,
            sandbox_cmd: false,
            host_tool: false,
            plan: json!({"nodes": ["work"], "bindings": {"work": bound().to_hex()}}),
        }
    }

    fn pinned(mut self) -> Self {
        self.pins.insert(blob());
        self
    }

    fn resolve(&self) -> Resolution {
        let profile = HostProfile {
            pins: &self.pins,
            sandbox_url: self.sandbox_url,
            sandbox_cmd: self.sandbox_cmd,
            host_tool: self.host_tool,
            model: None,
        };
        resolve(Plan::from_fields(&self.plan).unwrap().document(), self, &profile)
            .unwrap_or_else(|never| match never {})
    }

    fn refused(&self) -> Refusal {
        self.resolve().into_pinned().expect_err("the plan is refused")
    }

    fn refused_as(&self, code: &str, texts: &[&str]) {
        let refusal = self.refused();
        assert_eq!(refusal.code.code(), code, "{refusal}");
        assert_eq!(refusal.node.as_deref(), Some("work"));
        for text in texts {
            assert!(refusal.text.contains(text), "{text:?} is not in: {refusal}");
        }
    }
}

impl Catalogue for Host {
    type Error = Infallible;

    fn grain(&self, hash: &Digest) -> Result<Option<Grain>, Infallible> {
        Ok(self.grains.get(hash).cloned())
    }

    fn newest_definition(&self, tool_name: &str) -> Result<Option<Digest>, Infallible> {
        Ok(self.names.get(tool_name).copied())
    }

    fn has_blob(&self, digest: &Digest) -> Result<bool, Infallible> {
        Ok(self.blobs.contains(digest))
    }
}

fn uri() -> String {
    blob().to_uri()
}

#[test]
fn an_executor_uri_that_is_no_content_address_is_refused_by_name() {
    Host::new(json!({"executor_uri": "executor://crm.lookup@v3"}))
        .refused_as("RUN-E018", &["executor://crm.lookup@v3", "cas://sha256:"]);
    Host::new(json!({"executor_uri": blob().to_hex()})).refused_as("RUN-E018", &["cas://sha256:"]);
}

#[test]
fn code_that_is_not_pinned_is_refused_with_what_to_type() {
    Host::new(json!({"executor_uri": uri()})).refused_as("RUN-E018", &["--allow-executor", &blob().to_hex(), &uri()]);
}

#[test]
fn a_client_tool_cannot_carry_code() {
    Host::new(json!({"executor_kind": "client", "executor_uri": uri()}))
        .refused_as("RUN-E018", &["client tool", &uri()]);
    Host::new(json!({"executor_kind": "client", "runtime": "native"})).refused_as("RUN-E018", &["client tool"]);
    Host::new(json!({"executor_kind": "client", "capabilities": []})).refused_as("RUN-E018", &["client tool"]);
}

#[test]
fn a_wasm_runtime_without_a_sandbox_is_refused_naming_both_options() {
    let host = Host::new(json!({"executor_uri": uri(), "runtime": "wasm32-areev"})).pinned();
    host.refused_as("RUN-E018", &["--sandbox-url", "--sandbox-cmd"]);
}

#[test]
fn an_unknown_runtime_is_refused_and_nothing_falls_back_to_native() {
    let mut host = Host::new(json!({"executor_uri": uri(), "runtime": "python3"})).pinned();
    host.sandbox_url = true;
    host.host_tool = true;
    host.refused_as("RUN-E018", &["`python3`", "wasm32-areev-io"]);
}

#[test]
fn a_runtime_needs_code() {
    Host::new(json!({"runtime": "wasm32-areev"})).refused_as("RUN-E018", &["names no executor_uri", "`wasm32-areev`"]);
    Host::new(json!({"runtime": "native"})).refused_as("RUN-E018", &["names no executor_uri"]);
}

#[test]
fn the_capability_runtime_and_capabilities_need_each_other() {
    let io = |capabilities: Value| json!({"executor_uri": uri(), "runtime": "wasm32-areev-io", "capabilities": capabilities});
    Host::new(json!({"executor_uri": uri(), "runtime": "wasm32-areev-io"}))
        .refused_as("RUN-E018", &["no capabilities"]);
    let declared = json!([{"http": {"hosts": ["https://a.b"]}}]);
    let mut pure = io(declared.clone());
    pure["runtime"] = json!("wasm32-areev");
    Host::new(pure).refused_as("RUN-E018", &["`wasm32-areev-io`"]);
    Host::new(json!({"executor_uri": uri(), "capabilities": declared})).refused_as("RUN-E018", &["`wasm32-areev-io`"]);
    Host::new(json!({ "capabilities": declared })).refused_as("RUN-E018", &["`wasm32-areev-io`"]);
    let malformed = io(json!([{"http": {"hosts": ["https://*"]}}]));
    Host::new(malformed).refused_as("RUN-E018", &["malformed capabilities", "`https://*`"]);
}

#[test]
fn shape_comes_before_the_pin_the_pin_before_the_code_and_the_code_before_the_sandbox() {
    let mut host = Host::new(json!({"executor_uri": uri(), "runtime": "wasm32-areev-io"}));
    assert!(host.refused().text.contains("no capabilities"));
    host = Host::new(json!({"executor_uri": uri(), "runtime": "wasm32-areev"}));
    host.blobs.clear();
    assert!(host.refused().text.contains("--allow-executor"));
    host.pins.insert(blob());
    host.refused_as("RUN-E018", &["not in the catalogue", "PutBlob", &uri()]);
    host.blobs.insert(blob());
    assert!(host.refused().text.contains("--sandbox-url"));
    host.sandbox_cmd = true;
    assert!(host.resolve().refusals.is_empty());
}

#[test]
fn native_code_needs_the_sandbox_service() {
    for fields in [json!({"executor_uri": uri()}), json!({"executor_uri": uri(), "runtime": "native"})] {
        let mut host = Host::new(fields).pinned();
        host.sandbox_cmd = true;
        host.refused_as("RUN-E018", &["--sandbox-url", "--allow-native"]);
        host.sandbox_url = true;
        let nodes = host.resolve().into_pinned().unwrap().nodes;
        assert_eq!(nodes[0].tool.effect_class(), Some(EffectClass::Opaque));
    }
}

#[test]
fn a_host_tool_needs_a_tool_command_or_service() {
    let mut host = Host::new(json!({}));
    host.refused_as("RUN-E018", &["--tool-cmd", "--tool-url"]);
    host.host_tool = true;
    let nodes = host.resolve().into_pinned().unwrap().nodes;
    assert_eq!(nodes[0].tool.executor, Executor::HostTool);
}

#[test]
fn runtime_limits_are_known_names_with_non_negative_integers() {
    let limits = |limits: Value| json!({"executor_uri": uri(), "runtime": "wasm32-areev", "runtime_limits": limits});
    Host::new(limits(json!({"timeout": 3}))).refused_as("RUN-E018", &["`timeout`", "max_pages"]);
    Host::new(limits(json!({"fuel": -1}))).refused_as("RUN-E018", &["fuel", "`-1`"]);
    Host::new(limits(json!({"fuel": 1.5}))).refused_as("RUN-E018", &["`1.5`"]);
    Host::new(limits(json!([]))).refused_as("RUN-E018", &["runtime_limits"]);
    Host::new(json!({"runtime_limits": {"x": 1}})).refused_as("RUN-E018", &["`x`"]);
    let mut host = Host::new(limits(json!({"fuel": 5000, "max_pages": 64, "max_response_bytes": 4096}))).pinned();
    host.sandbox_url = true;
    let nodes = host.resolve().into_pinned().unwrap().nodes;
    let Executor::Code { limits: Some(limits), .. } = &nodes[0].tool.executor else { panic!("limits are pinned") };
    assert_eq!(
        (limits.fuel, limits.max_pages, limits.max_response_bytes, limits.max_calls),
        (Some(5000), Some(64), Some(4096), None)
    );
}

#[test]
fn a_capability_declaration_is_pinned_verbatim() {
    let declared =
        json!([{"http": {"hosts": ["https://gmail.googleapis.com"], "methods": ["POST"], "credentials": ["gmail"]}}]);
    let mut host =
        Host::new(json!({"executor_uri": uri(), "runtime": "wasm32-areev-io", "capabilities": declared})).pinned();
    host.sandbox_url = true;
    let nodes = host.resolve().into_pinned().unwrap().nodes;
    let Executor::Code { runtime, capabilities, .. } = &nodes[0].tool.executor else { panic!("code is pinned") };
    assert_eq!((*runtime, capabilities.as_ref()), (Runtime::WasmIo, Some(&declared)));
}

#[test]
fn a_binding_has_to_be_the_hash_of_a_stored_definition() {
    let mut host = Host::new(json!({}));
    host.plan["bindings"]["work"] = json!("not-a-hash");
    host.refused_as("RUN-E004", &["`not-a-hash`", "64 hex digits"]);
    host.plan["bindings"]["work"] = json!(Digest::of("other").to_hex());
    host.refused_as("RUN-E004", &[&Digest::of("other").to_hex(), "not in the catalogue"]);
    let fact = Grain { grain_type: "fact".to_owned(), fields: json!({}) };
    Host::with_grain(fact).refused_as("RUN-E004", &["`fact`"]);
    let execution = Grain { grain_type: "tool".to_owned(), fields: json!({"tool_name": "work"}) };
    Host::with_grain(execution).refused_as("RUN-E004", &["execution"]);
    Host::new(json!({"tool_name": "bad name"})).refused_as("RUN-E004", &["`bad name`", "A-Z a-z 0-9"]);
    Host::new(json!({"tool_name": "x".repeat(65)})).refused_as("RUN-E004", &["64"]);
}

#[test]
fn a_node_without_binding_takes_the_newest_definition_of_its_name_or_needs_a_model() {
    let mut host = Host::new(json!({}));
    host.host_tool = true;
    host.plan = json!({"nodes": ["work"]});
    host.refused_as("RUN-E006", &["`work`", "no model"]);
    host.names.insert("work".to_owned(), bound());
    assert_eq!(host.resolve().into_pinned().unwrap().nodes[0].tool.definition, bound());
}

#[test]
fn a_client_tool_is_an_ask() {
    let host = Host::new(
        json!({"executor_kind": "client", "tool_description": "Send it?", "output_schema": {"type": "object"}}),
    );
    let nodes = host.resolve().into_pinned().unwrap().nodes;
    assert_eq!((nodes[0].tool.kind(), nodes[0].tool.effect_class()), (NodeKind::Client, None));
    assert_eq!(nodes[0].tool.description, "Send it?");
    assert_eq!(nodes[0].tool.output_schema, Some(json!({"type": "object"})));
}

#[test]
fn an_unknown_executor_kind_or_a_field_of_the_wrong_type_is_refused() {
    Host::new(json!({"executor_kind": "robot"})).refused_as("RUN-E018", &["`robot`"]);
    Host::new(json!({"executor_uri": 7})).refused_as("RUN-E018", &["executor_uri", "`7`"]);
    Host::new(json!({"locked_params": []})).refused_as("RUN-E018", &["locked_params"]);
}

#[test]
fn every_node_is_refused_under_its_own_name() {
    let mut host = Host::new(json!({"runtime": "wasm32-areev"}));
    host.plan = json!({"nodes": ["a", "b"], "edges": [{"src": "a", "dst": "b"}],
                       "bindings": {"a": bound().to_hex(), "b": bound().to_hex()}});
    let refusals = host.resolve().refusals;
    assert_eq!(refusals.len(), 2);
    assert!(refusals[1].text.contains("node `b`"), "{}", refusals[1]);
    assert_eq!(refusals[1].node.as_deref(), Some("b"));
}

#[test]
fn hostile_values_are_cut_in_texts_and_metadata() {
    let refusal = Host::new(json!({"executor_uri": "x".repeat(1_000_000)})).refused();
    assert!(refusal.text.len() < 600);
    assert!(refusal.metadata["executor_uri"].len() < 300);
}
