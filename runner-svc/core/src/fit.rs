//! Whether inputs, results and answers fit the schemas that a node's definition froze.

use serde_json::Value;

use crate::{
    fan_out::SEND_KEY,
    outcome::{Failure, FailureCause},
    payload::Payload,
    pinned::{Executor, PinnedTool},
    schema,
    text::shown,
};

/// Why a strict definition's input must not be dispatched.
pub(crate) fn input(tool: &PinnedTool, input: &Payload) -> Option<Failure> {
    let document = tool.input_schema.as_ref().filter(|_| tool.strict)?;
    let problem = match input.parse() {
        Ok(value) => misfit(document, &value)?,
        Err(error) => format!("is no JSON: {error}"),
    };
    Some(failure(tool, "input", &problem))
}

/// Why a result is not taken as one: only of a strict definition. The tasks that it asks for are no part of it.
pub(crate) fn result(tool: &PinnedTool, mut output: Value) -> Option<Failure> {
    let document = tool.output_schema.as_ref().filter(|_| tool.strict)?;
    if let Some(members) = output.as_object_mut() {
        members.remove(SEND_KEY);
    }
    misfit(document, &output).map(|problem| failure(tool, "result", &problem))
}

/// Why a result cannot have been taken as one.
pub(crate) fn recorded(tool: &PinnedTool, output: &Payload) -> Option<Failure> {
    tool.output_schema.as_ref().filter(|_| tool.strict)?;
    match output.parse() {
        Ok(value) => result(tool, value),
        Err(error) => Some(failure(tool, "result", &format!("is no JSON: {error}"))),
    }
}

/// Why a person's answer is not taken: of any definition that has a schema for it.
pub(crate) fn answer(tool: &PinnedTool, answer: &Value) -> Option<String> {
    let document = tool.output_schema.as_ref().filter(|_| matches!(tool.executor, Executor::Person))?;
    let problem = misfit(document, answer)?;
    Some(format!("it does not fit the output_schema of {}: {problem}", shown(&tool.tool_name)))
}

/// Why a model's arguments are not taken: of any definition that has a schema for its input.
pub(crate) fn arguments(tool: &PinnedTool, input: &Payload) -> Option<String> {
    let document = tool.input_schema.as_ref()?;
    match input.parse() {
        Ok(value) => misfit(document, &value),
        Err(error) => Some(format!("the arguments are no JSON: {error}")),
    }
}

/// Which rule of a schema a value breaks.
pub(crate) fn misfit(document: &Value, value: &Value) -> Option<String> {
    match schema::of(document) {
        Ok(schema) => schema.check(value).err().map(|misfit| misfit.to_string()),
        // Refused at start; a manifest that was written elsewhere may still say so.
        Err(bad) => Some(format!("the schema cannot be used: {bad}")),
    }
}

fn failure(tool: &PinnedTool, what: &str, problem: &str) -> Failure {
    let schema = if what == "input" { "input_schema" } else { "output_schema" };
    let detail = format!("the {what} does not fit the {schema} of {}: {problem}", shown(&tool.tool_name));
    Failure::new(FailureCause::SchemaValidationFailed, &detail)
}
