//! The loop of an abstract node: the model is asked, calls tools, is told what they answered, and is asked again.
//!
//! Each question and each tool call is an effect of the node's attempt, with the next effect number. What follows from an answer
//! is derived from the journal alone.

use std::collections::VecDeque;

use serde_json::{Value, json};

use super::{State, Task};
use crate::{
    document::Document,
    fit,
    key::{EffectKey, EffectKind},
    model::{self, Answer, EFFECTS_PER_ATTEMPT_MAX, ModelPin},
    outcome::{EffectOutcome, Failure, FailureCause},
    payload::Payload,
    pinned::{Executor, PinnedNode},
};

/// How far an attempt has come.
#[derive(Debug, Clone, Default)]
pub(crate) struct Dialogue {
    /// What was said since the opening, as requests have it.
    said: Vec<Value>,
    /// Tool calls that the model asked for and that are still to be made.
    calls: VecDeque<Call>,
    /// Effects so far: the number of the next one.
    effects: u32,
    /// Whether the model was told once that its arguments do not fit.
    corrected: bool,
}

/// A tool call whose arguments fit.
#[derive(Debug, Clone)]
struct Call {
    id: String,
    /// Index of the node whose definition it calls.
    node: usize,
    input: Payload,
}

/// What follows from an effect of a dialogue.
pub(super) enum Then {
    /// Its next effect.
    Effect,
    /// The node's result.
    Result(Payload),
    /// The end of the attempt.
    Failure(Failure),
}

impl State {
    /// The model of a task; none unless its node is abstract.
    pub(crate) fn model_of(&self, task: &Task) -> Option<&ModelPin> {
        match &self.pinned(task.node).tool.executor {
            Executor::Model { model } => Some(model),
            Executor::HostTool | Executor::Code { .. } | Executor::Person | Executor::ChildRun => None,
        }
    }

    /// The key of the next effect of an abstract node's task.
    pub(super) fn next_in_dialogue(&self, task: &Task, key: EffectKey) -> EffectKey {
        match self.dialogues.get(task) {
            None => key,
            Some(dialogue) => EffectKey {
                attempt: key.attempt - 1,
                effect_seq: dialogue.effects,
                kind: if dialogue.calls.is_empty() { EffectKind::Llm } else { EffectKind::Tool },
                ..key
            },
        }
    }

    /// The node whose definition executes a task's next effect.
    pub(crate) fn executing(&self, task: &Task) -> usize {
        let call = self.dialogues.get(task).and_then(|dialogue| dialogue.calls.front());
        call.map_or(task.node, |call| call.node)
    }

    /// The input of the next effect of an abstract node's task: arguments that the model gave, or its next question.
    pub(super) fn input_in_dialogue(&self, task: &Task, model: &ModelPin, input: &Payload) -> Payload {
        let dialogue = self.dialogues.get(task);
        if let Some(call) = dialogue.and_then(|dialogue| dialogue.calls.front()) {
            return call.input.clone();
        }
        let said = dialogue.map_or(&[][..], |dialogue| &dialogue.said);
        let step = &self.pinned(task.node).node;
        model::request(model, (step, input), said, &model::offers(&self.manifest.nodes))
    }

    /// An effect of a dialogue was dispatched.
    pub(super) fn dialogue_goes_on(&mut self, task: &Task) {
        self.dialogues.entry(task.clone()).or_default().effects += 1;
    }

    /// An effect of a dialogue settled.
    pub(super) fn dialogue_settled(&mut self, task: &Task, key: &EffectKey, outcome: &EffectOutcome) -> Then {
        let mut dialogue = self.dialogues.remove(task).unwrap_or_default();
        let then = match (key.kind, outcome) {
            (EffectKind::Llm, EffectOutcome::Failed { failure }) => Then::Failure(failure.clone()),
            (EffectKind::Llm, EffectOutcome::Completed { output }) => dialogue.answered(output, &self.manifest.nodes),
            // Nobody knows what became of it: that is not the model's to judge.
            (_, EffectOutcome::Failed { failure }) if failure.code.is_some() => Then::Failure(failure.clone()),
            (_, outcome) => {
                dialogue.called(outcome);
                Then::Effect
            }
        };
        match then {
            Then::Effect if dialogue.effects >= EFFECTS_PER_ATTEMPT_MAX => {
                let detail = format!("the model has made {EFFECTS_PER_ATTEMPT_MAX} effects and is not done");
                Then::Failure(Failure::permanent(FailureCause::ExecutorError, &detail))
            }
            Then::Effect => {
                self.dialogues.insert(task.clone(), dialogue);
                Then::Effect
            }
            end => end,
        }
    }
}

impl Dialogue {
    fn answered(&mut self, output: &Payload, nodes: &[PinnedNode]) -> Then {
        let answer = match Answer::read(output) {
            Ok(answer) => answer,
            Err(bad) => return Then::Failure(Failure::new(FailureCause::ExecutorError, &bad.to_string())),
        };
        if answer.tool_calls.is_empty() {
            let nothing = || Failure::new(FailureCause::SchemaValidationFailed, "the model's answer says nothing");
            return answer.result().map_or_else(|| Then::Failure(nothing()), Then::Result);
        }
        self.said.push(answer.wire());
        let offers = model::offers(nodes);
        let mut misfits = Vec::new();
        for spoken in answer.tool_calls {
            let offer = offers.iter().find(|offer| offer.name == spoken.name);
            let read = offer.ok_or_else(|| "there is no such tool".to_owned()).and_then(|offer| {
                let input = arguments(&spoken.arguments, &nodes[offer.node])?;
                Ok(Call { id: spoken.id.clone(), node: offer.node, input })
            });
            match read {
                Ok(call) => self.calls.push_back(call),
                Err(problem) => misfits.push((spoken.id, problem)),
            }
        }
        let Some((_, first)) = misfits.first() else { return Then::Effect };
        if std::mem::replace(&mut self.corrected, true) {
            let detail = format!("the model's arguments do not fit again: {first}");
            return Then::Failure(Failure::new(FailureCause::SchemaValidationFailed, &detail));
        }
        for (id, problem) in misfits {
            self.tell(&id, &format!("error: the call was not made: {problem}; correct it"));
        }
        Then::Effect
    }

    /// The first of the calls settled: the model is told, also of a failure.
    fn called(&mut self, outcome: &EffectOutcome) {
        let Some(call) = self.calls.pop_front() else { return };
        match outcome {
            EffectOutcome::Completed { output } => self.tell(&call.id, output.text()),
            EffectOutcome::Failed { failure } => {
                let (cause, detail) = (failure.cause.as_str(), failure.detail.text());
                self.tell(&call.id, &format!("error: {cause}: {detail}"));
            }
        }
    }

    fn tell(&mut self, id: &str, content: &str) {
        self.said.push(json!({"role": "tool", "tool_call_id": id, "content": content}));
    }
}

/// The input of a tool call: the model's arguments, with the definition's locked parameters laid over them.
fn arguments(text: &str, node: &PinnedNode) -> Result<Payload, String> {
    let text = if text.trim().is_empty() { "{}" } else { text };
    let document = Document::read(text).map_err(|error| format!("the arguments are no JSON object: {error}"))?;
    let input = document.with(&node.tool.locked_params);
    match fit::arguments(&node.tool, &input) {
        Some(problem) => Err(problem),
        None => Ok(input),
    }
}
