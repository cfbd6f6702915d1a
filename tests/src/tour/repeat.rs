//! What the tour stores, and the commands that repeat it. Each works as it stands, in the order in which they are printed.

use std::path::Path;

use serde_json::{Value, json};

use crate::{client::NAMESPACE, document::PURE};

/// `created_at` of what the tour stores, in milliseconds: it is inside the hashes, so it is the same each time.
const CREATED_AT_MS: i64 = 1_700_000_000_000;
/// Where the services listen when they are not told otherwise.
const RUNNER: &str = "127.0.0.1:7410";
const SANDBOX: &str = "127.0.0.1:7420";

/// The tool, by its module.
pub fn definition(name: &str, uri: &str) -> Value {
    json!({
        "tool_name": name,
        "tool_description": "Adds up the cents of the lines of an invoice.",
        "tool_kind": "definition",
        "created_at": CREATED_AT_MS,
        "runtime": PURE,
        "executor_uri": uri,
    })
}

/// A plan whose one node is the tool.
pub fn plan(name: &str, definition_hash: &str) -> Value {
    json!({"nodes": [name], "created_at": CREATED_AT_MS, "bindings": {name: definition_hash}})
}

/// The module once, without a service.
pub fn once(sandbox: &Path, module: &Path, input: &str) -> String {
    format!("echo {} | {} exec --module {}", quoted(input), shown(sandbox), shown(module))
}

/// A sandbox, and a runner that runs this module.
pub fn services(programs: &Path, digest: &str) -> Vec<String> {
    let (sandbox, runner) = (shown(&programs.join("sandbox-svc")), shown(&programs.join("runner-svc")));
    vec![
        format!("{sandbox} &"),
        format!("{runner} --data-dir /tmp/areev-guest --sandbox-url http://{SANDBOX} --allow-executor {digest} &"),
    ]
}

/// The calls to the runner, from the module to the result.
pub fn calls(module: &Path, definition: &Value, plan: &Value, plan_hash: &str, input: &Value) -> Vec<String> {
    let service = |name: &str| format!("{RUNNER} areev.runner.v1.{name}");
    let call = |request: Value, method: &str| {
        format!("grpcurl -plaintext -d {} {}", quoted(&request.to_string()), service(method))
    };
    vec![
        format!(
            "(printf '{{\"chunk\": \"'; base64 -w 0 {}; printf '\"}}') | grpcurl -plaintext -d @ {}",
            shown(module),
            service("CatalogService/PutBlob")
        ),
        call(json!({"namespace": NAMESPACE, "definition": definition}), "CatalogService/PutDefinition"),
        call(json!({"namespace": NAMESPACE, "plan": plan}), "CatalogService/PutPlan"),
        call(
            json!({"namespace": NAMESPACE, "run_id": "total-1", "wait": true, "plan_hash": plan_hash, "input": input}),
            "RunnerService/StartRun",
        ),
    ]
}

/// A path as one word of a shell.
pub fn shown(path: &Path) -> String {
    let text = path.display().to_string();
    let plain = text.chars().all(|letter| letter.is_alphanumeric() || "/._-+~".contains(letter));
    if plain { text } else { quoted(&text) }
}

/// A text as one word of a shell.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}
