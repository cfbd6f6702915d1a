//! What a run's effect looks like as a grain: a Tool of kind `execution`.

use serde_json::{Map, Value};

use super::{BadGrain, Draft, Grain, GrainType, Item, Relation};

/// How an effect stands.
#[derive(Debug, Clone, PartialEq)]
pub enum ExecutionStatus {
    /// Its intent is journaled and its result is not.
    Pending,
    /// It gave this result, one JSON text.
    Completed {
        /// The result.
        content: String,
    },
    /// It failed.
    Failed {
        /// A known cause, such as `executor_error`.
        cause: String,
        /// What went wrong.
        detail: String,
    },
}

/// An effect of a run, to be written as a grain.
#[derive(Debug, Clone)]
pub struct Execution<'a> {
    /// The run's namespace.
    pub namespace: &'a str,
    /// When the effect's intent was journaled, or its result once there is one; milliseconds since 1970.
    pub created_at_ms: i64,
    /// The tool.
    pub tool_name: &'a str,
    /// The effect's id, 64 lower-case hex digits.
    pub tool_call_id: &'a str,
    /// What the tool was given.
    pub input: Option<&'a Value>,
    /// How it stands.
    pub status: ExecutionStatus,
    /// Address of the definition, 64 lower-case hex digits.
    pub definition_hash: Option<&'a str>,
    /// Address of the plan, 64 lower-case hex digits.
    pub plan_hash: Option<&'a str>,
    /// The node; with the plan it makes the link that step actions are found by.
    pub node: &'a str,
    /// The principal that started the run.
    pub author: Option<&'a str>,
    /// Further facts: `run_id`, `task_path`, `attempt`, `effect_seq`, `superstep`, `effect_kind`, … A null is left out.
    pub facts: Map<String, Value>,
}

impl Execution<'_> {
    /// Makes the grain. The same effect in the same state always has the same bytes.
    pub fn seal(&self) -> Result<Grain, BadGrain> {
        let mut draft = Draft::new(GrainType::Tool, Some(self.namespace), self.created_at_ms);
        draft.set("tool_name", Item::text(self.tool_name));
        draft.set("tool_call_id", Item::text(self.tool_call_id));
        if let Some(input) = self.input {
            draft.set("input", Item::of(input));
        }
        let status = match &self.status {
            ExecutionStatus::Pending => "pending",
            ExecutionStatus::Completed { content } => {
                draft.set("tool_content", Item::text(content));
                draft.set("is_error", Item::Bool(false));
                "completed"
            }
            ExecutionStatus::Failed { cause, detail } => {
                draft.set("failure_cause", Item::text(cause));
                draft.set("failure_detail", Item::text(detail));
                draft.set("is_error", Item::Bool(true));
                "failed"
            }
        };
        draft.set("status", Item::text(status));
        draft.set_text("spec_hash", self.definition_hash);
        draft.set_text("author_did", self.author);
        if let Some(plan) = self.plan_hash {
            let relation_type = format!("mg:step_action:{}", self.node);
            draft.relations(&[Relation { hash: plan.to_owned(), relation_type, weight: None }]);
        }
        draft.extra("node", Value::from(self.node));
        for (name, value) in self.facts.iter().filter(|(_, value)| !value.is_null()) {
            draft.extra(name, value.clone());
        }
        draft.seal()
    }
}
