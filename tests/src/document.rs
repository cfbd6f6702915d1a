//! Definitions and plans as the tests author them.

use serde_json::{Map, Value, json};

use crate::{client::NAMESPACE, foreign_grain};

/// `created_at` of every definition and plan of the tests, in milliseconds: they are inside the hashes.
const DEFINITION_CREATED_AT_MS: i64 = 500;
const PLAN_CREATED_AT_MS: i64 = 600;

/// The pure runtime.
pub const PURE: &str = "wasm32-areev";
/// The runtime with outbound calls.
pub const IO: &str = "wasm32-areev-io";

/// A definition's document.
#[derive(Debug, Clone)]
pub struct Definition(Map<String, Value>);

impl Definition {
    /// A host tool without code.
    pub fn tool(name: &str) -> Self {
        let document = json!({
            "tool_name": name,
            "kind": "definition",
            "tool_description": format!("the tool {name} of a test"),
            "namespace": NAMESPACE,
            "created_at": DEFINITION_CREATED_AT_MS,
        });
        let Value::Object(fields) = document else { unreachable!("the literal is an object") };
        Self(fields)
    }

    /// A tool that a person answers.
    pub fn client(name: &str) -> Self {
        Self::tool(name).with("executor_kind", "client")
    }

    /// A tool whose code is a blob that runs natively.
    pub fn code(name: &str, uri: &str) -> Self {
        Self::tool(name).with("executor_uri", uri)
    }

    /// A tool whose code is a pure module.
    pub fn pure(name: &str, uri: &str) -> Self {
        Self::code(name, uri).with("runtime", PURE)
    }

    /// A tool whose code is a module that may call out.
    pub fn io(name: &str, uri: &str, capabilities: Value) -> Self {
        Self::code(name, uri).with("runtime", IO).with("capabilities", capabilities)
    }

    /// Sets a field.
    #[must_use]
    pub fn with(mut self, field: &str, value: impl Into<Value>) -> Self {
        self.0.insert(field.to_owned(), value.into());
        self
    }

    /// The document.
    pub fn json(&self) -> Value {
        Value::Object(self.0.clone())
    }

    /// The grain that another implementation would have written.
    pub fn grain(&self) -> Vec<u8> {
        foreign_grain::tool(&self.0)
    }
}

/// A plan's document.
#[derive(Debug, Clone, Default)]
pub struct Plan {
    nodes: Vec<String>,
    edges: Vec<Value>,
    bindings: Map<String, Value>,
    rest: Map<String, Value>,
}

impl Plan {
    /// A plan without nodes.
    pub fn new() -> Self {
        Self::default()
    }

    /// The one node `work`.
    pub fn work(definition: &str) -> Self {
        Self::new().node("work", definition)
    }

    /// Nodes in a row, each bound to its own definition.
    pub fn chain<'a>(steps: impl IntoIterator<Item = (&'a str, &'a str)>) -> Self {
        steps.into_iter().fold(Self::new(), |plan, (node, definition)| {
            let last = plan.nodes.last().cloned();
            let plan = plan.node(node, definition);
            match last {
                Some(last) => plan.edge(&last, node),
                None => plan,
            }
        })
    }

    /// Adds a bound node. The first is the entry.
    #[must_use]
    pub fn node(mut self, node: &str, definition: &str) -> Self {
        self.bindings.insert(node.to_owned(), definition.into());
        self.unbound(node)
    }

    /// Adds a node without a binding.
    #[must_use]
    pub fn unbound(mut self, node: &str) -> Self {
        self.nodes.push(node.to_owned());
        self
    }

    /// Adds an edge.
    #[must_use]
    pub fn edge(mut self, src: &str, dst: &str) -> Self {
        self.edges.push(json!({"src": src, "dst": dst}));
        self
    }

    /// Adds an edge with a condition.
    #[must_use]
    pub fn edge_if(mut self, src: &str, dst: &str, condition: &str) -> Self {
        self.edges.push(json!({"src": src, "dst": dst, "cond": condition}));
        self
    }

    /// Adds an edge that may fire a bounded number of times.
    #[must_use]
    pub fn back_edge(mut self, src: &str, dst: &str, condition: &str, max_cycles: u32) -> Self {
        self.edges.push(json!({"src": src, "dst": dst, "cond": condition, "max_cycles": max_cycles}));
        self
    }

    /// Sets another field, such as `retries` or `reducers`.
    #[must_use]
    pub fn with(mut self, field: &str, value: impl Into<Value>) -> Self {
        self.rest.insert(field.to_owned(), value.into());
        self
    }

    /// The document.
    pub fn json(&self) -> Value {
        let mut document = self.rest.clone();
        document.insert("nodes".to_owned(), json!(self.nodes));
        document.insert("edges".to_owned(), json!(self.edges));
        document.insert("bindings".to_owned(), Value::Object(self.bindings.clone()));
        document.insert("namespace".to_owned(), NAMESPACE.into());
        document.insert("created_at".to_owned(), PLAN_CREATED_AT_MS.into());
        Value::Object(document)
    }
}
