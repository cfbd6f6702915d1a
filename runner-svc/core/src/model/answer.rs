//! A model's answer: from the HTTP body to the text that is journaled, and from that to what follows.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::Tokens;
use crate::{payload::Payload, text::cut};

/// Most tool calls of one answer.
const CALLS_MAX: usize = 16;
/// Longest id of a tool call and longest name of a tool, in bytes.
const WORD_BYTES_MAX: usize = 256;
/// Longest text of an answer and longest arguments of a call, in bytes.
const TEXT_BYTES_MAX: usize = 1024 * 1024;

/// An answer as it is journaled.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Answer {
    /// What the model says; empty when it only calls tools.
    #[serde(default)]
    pub content: String,
    /// What it calls, in its order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tool_calls: Vec<Spoken>,
}

/// A tool call as the model words it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Spoken {
    /// The model's name of the call.
    pub id: String,
    /// The tool's name, as it was offered.
    pub name: String,
    /// The arguments, which ought to be one JSON object.
    pub arguments: String,
}

/// An answer that cannot be taken.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the model's answer {0}")]
pub struct BadAnswer(String);

#[derive(Deserialize)]
struct Body {
    choices: Vec<Choice>,
    #[serde(default)]
    usage: Option<Usage>,
}

#[derive(Deserialize)]
struct Choice {
    message: Message,
}

#[derive(Deserialize)]
struct Message {
    #[serde(default)]
    content: Option<String>,
    #[serde(default)]
    tool_calls: Option<Vec<Call>>,
}

#[derive(Deserialize)]
struct Call {
    id: String,
    function: Function,
}

#[derive(Deserialize)]
struct Function {
    name: String,
    #[serde(default)]
    arguments: String,
}

#[derive(Deserialize)]
struct Usage {
    #[serde(default)]
    prompt_tokens: u64,
    #[serde(default)]
    completion_tokens: u64,
    #[serde(default)]
    total_tokens: u64,
}

/// Reads the body of a chat-completions response: the answer to journal, and the tokens that it cost.
///
/// # Errors
/// The body is no such response, or something in it is over its bound.
pub fn read_response(body: &[u8]) -> Result<(Payload, Tokens), BadAnswer> {
    let body: Body = serde_json::from_slice(body)
        .map_err(|error| BadAnswer(cut(&format!("is no chat completion: {error}"), WORD_BYTES_MAX)))?;
    let tokens = body.usage.map_or_else(Tokens::default, |usage| Tokens {
        input: usage.prompt_tokens,
        output: usage.completion_tokens,
        total: usage.total_tokens.max(usage.prompt_tokens.saturating_add(usage.completion_tokens)),
    });
    let message = body.choices.into_iter().next().ok_or_else(|| BadAnswer("has no choice".to_owned()))?.message;
    let spoken = |call: Call| Spoken { id: call.id, name: call.function.name, arguments: call.function.arguments };
    let tool_calls = message.tool_calls.unwrap_or_default().into_iter().map(spoken).collect();
    let answer = Answer { content: message.content.unwrap_or_default(), tool_calls };
    answer.check()?;
    let text = serde_json::to_string(&answer).expect("an answer has text only");
    Ok((Payload::new(text), tokens))
}

impl Answer {
    /// Reads a journaled answer.
    ///
    /// # Errors
    /// It is not one.
    pub(crate) fn read(text: &Payload) -> Result<Self, BadAnswer> {
        let answer: Self =
            serde_json::from_str(text.text()).map_err(|error| BadAnswer(format!("does not read: {error}")))?;
        answer.check()?;
        Ok(answer)
    }

    fn check(&self) -> Result<(), BadAnswer> {
        let over = |what: &str, size: usize, max: usize| {
            if size > max { Err(BadAnswer(format!("has {what} of {size}, over {max}"))) } else { Ok(()) }
        };
        over("a number of tool calls", self.tool_calls.len(), CALLS_MAX)?;
        over("a text, in bytes,", self.content.len(), TEXT_BYTES_MAX)?;
        for call in &self.tool_calls {
            over("an id of a tool call, in bytes,", call.id.len(), WORD_BYTES_MAX)?;
            over("a tool's name, in bytes,", call.name.len(), WORD_BYTES_MAX)?;
            over("arguments, in bytes,", call.arguments.len(), TEXT_BYTES_MAX)?;
        }
        Ok(())
    }

    /// The result that it is, when it calls no tool: its JSON, or its text as a JSON string; none when it says nothing.
    pub(crate) fn result(&self) -> Option<Payload> {
        let text = self.content.trim();
        if text.is_empty() {
            return None;
        }
        let is_json = serde_json::from_str::<Value>(text).is_ok();
        Some(if is_json { Payload::new(text) } else { Payload::of(&Value::String(text.to_owned())) })
    }

    /// As the next request has it.
    pub(crate) fn wire(&self) -> Value {
        let call = |call: &Spoken| {
            serde_json::json!({"id": call.id, "type": "function",
                               "function": {"name": call.name, "arguments": call.arguments}})
        };
        let calls: Vec<Value> = self.tool_calls.iter().map(call).collect();
        serde_json::json!({"role": "assistant", "content": self.content, "tool_calls": calls})
    }
}
