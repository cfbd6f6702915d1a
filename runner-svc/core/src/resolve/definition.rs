//! Reads a definition's fields into its pinned form: the shape gates, which need nothing but the definition.

use content_digest::Digest;
use serde_json::{Map, Value};

use super::Grain;
use crate::{
    capability,
    pinned::{Executor, PinnedTool, Runtime, RuntimeLimits},
    refusal::{Refusal, RefusalCode},
    schema,
    text::shown,
};

/// Longest tool name, in bytes.
const TOOL_NAME_BYTES_MAX: usize = 64;

/// Reads a grain that `node` is bound to.
pub(super) fn read(node: &str, hash: Digest, grain: &Grain) -> Result<PinnedTool, Refusal> {
    let fields = definition_fields(node, &hash, grain)?;
    let tool_name = tool_name(node, fields)?;
    let reader = Reader { node, tool_name, fields };
    let executor = reader.executor()?;
    let (input_schema, output_schema) = (reader.schema("input_schema")?, reader.schema("output_schema")?);
    let strict = reader.strict()?;
    Ok(PinnedTool {
        definition: hash,
        tool_name: tool_name.to_owned(),
        description: reader.text("tool_description")?.unwrap_or_default().to_owned(),
        executor,
        input_schema: input_schema.filter(|_| strict),
        output_schema,
        strict,
        locked_params: reader.locked_params()?,
    })
}

fn definition_fields<'a>(node: &str, hash: &Digest, grain: &'a Grain) -> Result<&'a Map<String, Value>, Refusal> {
    let unresolved = |what: &str| {
        let text = format!("node {} is bound to {hash}, which is {what}: bind it to a definition", shown(node));
        Refusal::new(RefusalCode::Unresolved, text).with("definition_hash", hash.to_hex())
    };
    match grain.grain_type.as_str() {
        "tool" => {}
        other => return Err(unresolved(&format!("a grain of type {}", shown(other)))),
    }
    let fields = grain.fields.as_object().ok_or_else(|| unresolved("no object"))?;
    match fields.get("kind").and_then(Value::as_str) {
        Some("definition") => Ok(fields),
        _ => Err(unresolved("the record of an execution, not a definition")),
    }
}

fn tool_name<'a>(node: &str, fields: &'a Map<String, Value>) -> Result<&'a str, Refusal> {
    let name = fields.get("tool_name").and_then(Value::as_str).unwrap_or_default();
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.' | b'-');
    if !name.is_empty() && name.len() <= TOOL_NAME_BYTES_MAX && name.bytes().all(allowed) {
        return Ok(name);
    }
    let (node, shown_name) = (shown(node), shown(name));
    let text =
        format!("the tool of node {node} is named {shown_name}: use 1 to {TOOL_NAME_BYTES_MAX} of A-Z a-z 0-9 _ . -");
    Err(Refusal::new(RefusalCode::Unresolved, text).with("tool_name", name))
}

struct Reader<'a> {
    node: &'a str,
    tool_name: &'a str,
    fields: &'a Map<String, Value>,
}

impl<'a> Reader<'a> {
    /// The executor, through every gate that the definition alone decides.
    fn executor(&self) -> Result<Executor, Refusal> {
        let uri = self.text("executor_uri")?;
        let runtime = self.text("runtime")?;
        match self.text("executor_kind")? {
            None | Some("host") => {}
            Some("client") => return self.person(uri, runtime),
            Some(other) => {
                return Err(self
                    .refuse(format!("has the unknown executor_kind {}: use host or client", shown(other)))
                    .with("executor_kind", other));
            }
        }
        let Some(uri) = uri else { return self.host_tool(runtime) };
        let digest = Digest::from_uri(uri).map_err(|_| {
            let form = "cas://sha256:<64 lower-case hex digits>";
            self.refuse(format!(
                "names the executor_uri {}, which is no content address: store the code with PutBlob and name it as {form}",
                shown(uri)
            ))
            .with("executor_uri", uri)
        })?;
        let runtime = match runtime {
            None => Runtime::Native,
            Some(word) => Runtime::parse(word).ok_or_else(|| {
                self.refuse(format!("names the unknown runtime {}: there are {}", shown(word), Runtime::NAMES))
                    .with("runtime", word)
            })?,
        };
        Ok(Executor::Code { digest, runtime, limits: self.limits()?, capabilities: self.capabilities(runtime)? })
    }

    fn person(&self, uri: Option<&str>, runtime: Option<&str>) -> Result<Executor, Refusal> {
        if let Some(uri) = uri {
            let text = format!(
                "is a client tool, which a person answers, but names the executor_uri {}: drop executor_uri, or drop \
                 `executor_kind: client`",
                shown(uri)
            );
            return Err(self.refuse(text).with("executor_uri", uri));
        }
        if let Some(runtime) = runtime {
            let text =
                format!("is a client tool, which a person answers, but names the runtime {}: drop it", shown(runtime));
            return Err(self.refuse(text).with("runtime", runtime));
        }
        if self.capabilities_declared().is_some() {
            return Err(self.refuse("is a client tool, which a person answers, but declares capabilities: drop them"));
        }
        Ok(Executor::Person)
    }

    fn host_tool(&self, runtime: Option<&str>) -> Result<Executor, Refusal> {
        if let Some(runtime) = runtime {
            let text = format!(
                "names the runtime {} but names no executor_uri: name the code as cas://sha256:<64 hex digits>, or drop \
                 the runtime",
                shown(runtime)
            );
            return Err(self.refuse(text).with("runtime", runtime));
        }
        if self.capabilities_declared().is_some() {
            let text = "declares capabilities but no code: they need an executor_uri and the runtime `wasm32-areev-io`";
            return Err(self.refuse(text));
        }
        self.limits()?;
        Ok(Executor::HostTool)
    }

    fn limits(&self) -> Result<Option<RuntimeLimits>, Refusal> {
        let Some(value) = self.fields.get("runtime_limits").filter(|value| !value.is_null()) else { return Ok(None) };
        let Some(members) = value.as_object() else {
            return Err(self.refuse(format!("has the runtime_limits {}: give an object", shown(&value.to_string()))));
        };
        let mut limits = RuntimeLimits::default();
        for (name, value) in members {
            let slot = match name.as_str() {
                "fuel" => &mut limits.fuel,
                "max_pages" => &mut limits.max_pages,
                "max_calls" => &mut limits.max_calls,
                "max_response_bytes" => &mut limits.max_response_bytes,
                "max_request_bytes" => &mut limits.max_request_bytes,
                "max_blob_bytes" => &mut limits.max_blob_bytes,
                _ => {
                    let text = format!(
                        "has the unknown runtime limit {}: there are fuel, max_pages, max_calls, max_response_bytes, \
                         max_request_bytes, max_blob_bytes",
                        shown(name)
                    );
                    return Err(self.refuse(text).with("runtime_limit", name));
                }
            };
            *slot = Some(value.as_u64().ok_or_else(|| {
                let value = shown(&value.to_string());
                self.refuse(format!("has the runtime limit {name} of {value}: give a non-negative integer"))
                    .with("runtime_limit", name)
            })?);
        }
        Ok(Some(limits))
    }

    fn capabilities(&self, runtime: Runtime) -> Result<Option<Value>, Refusal> {
        match (runtime, self.capabilities_declared()) {
            (Runtime::Native | Runtime::Wasm, None) => Ok(None),
            (Runtime::Native | Runtime::Wasm, Some(_)) => Err(self.refuse(format!(
                "declares capabilities, which its runtime `{}` cannot use: give it the runtime `wasm32-areev-io`, or drop \
                 the capabilities",
                runtime.as_str()
            ))),
            (Runtime::WasmIo, None) => Err(self.refuse(
                "has the runtime `wasm32-areev-io` but declares no capabilities: declare what it may reach, such as \
                 [{\"http\": {\"hosts\": [\"https://api.example.com\"]}}], or use the runtime `wasm32-areev`",
            )),
            (Runtime::WasmIo, Some(declaration)) => match capability::check(declaration) {
                Ok(()) => Ok(Some(declaration.clone())),
                Err(error) => Err(self.refuse(format!("has {error}"))),
            },
        }
    }

    fn capabilities_declared(&self) -> Option<&'a Value> {
        self.fields.get("capabilities").filter(|value| !value.is_null())
    }

    fn locked_params(&self) -> Result<Map<String, Value>, Refusal> {
        match self.fields.get("locked_params") {
            None | Some(Value::Null) => Ok(Map::new()),
            Some(Value::Object(params)) => Ok(params.clone()),
            Some(other) => {
                Err(self.refuse(format!("has the locked_params {}: give an object", shown(&other.to_string()))))
            }
        }
    }

    /// A schema that can be used. It was checked when the definition was authored, but not if another implementation wrote it.
    fn schema(&self, name: &str) -> Result<Option<Value>, Refusal> {
        let Some(document) = self.fields.get(name).filter(|value| !value.is_null()) else { return Ok(None) };
        match schema::of(document) {
            Ok(_) => Ok(Some(document.clone())),
            Err(bad) => Err(self.refuse(format!("has an unusable {name}: {bad}")).with("schema", name)),
        }
    }

    fn strict(&self) -> Result<bool, Refusal> {
        match self.fields.get("strict") {
            None | Some(Value::Null) => Ok(false),
            Some(Value::Bool(strict)) => Ok(*strict),
            Some(other) => Err(self.refuse(format!("has strict of {}: give true or false", shown(&other.to_string())))),
        }
    }

    fn text(&self, name: &str) -> Result<Option<&'a str>, Refusal> {
        match self.fields.get(name) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(other) => Err(self.refuse(format!("has the {name} {}, which is no text", shown(&other.to_string())))),
        }
    }

    fn refuse(&self, text: impl AsRef<str>) -> Refusal {
        let (tool, node) = (shown(self.tool_name), shown(self.node));
        Refusal::new(RefusalCode::ExecutorRefused, format!("tool {tool} of node {node} {}", text.as_ref()))
            .with("tool", self.tool_name)
    }
}
