//! Fan-out: a result with the reserved key `$send` asks for tasks, each a node with an input of its own.

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::{
    document::{compact, members},
    payload::Payload,
    pinned::{NodeKind, PinnedNode},
    plan::Plan,
    text::shown,
};

/// Key of a result that asks for tasks. It is never merged into the state.
pub const SEND_KEY: &str = "$send";
/// Most tasks that one result asks for.
pub const TASKS_PER_RESULT_MAX: usize = 4096;
/// Most tasks that one static node, or one task, asks for in a run: their ordinals have four digits.
pub const TASKS_PER_PARENT_MAX: usize = 10_000;
/// Most tasks of a run, over all its parents: each is kept in memory until it has settled.
pub const TASKS_PER_RUN_MAX: usize = 100_000;
/// How deep tasks may ask for tasks: the path of a task of depth 1 is `<node>/0000`.
pub const DEPTH_MAX: usize = 16;

/// One task that a result asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Send {
    /// Index of the node that executes it.
    pub(crate) node: usize,
    /// Its input, one compact JSON text.
    pub(crate) input: Payload,
}

/// Who asks.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sender<'a> {
    /// Index of the node whose result it is.
    pub(crate) node: usize,
    /// Tasks that it asked for before, in this run.
    pub(crate) sent: usize,
    /// How deep it lies: 0 for a static node.
    pub(crate) depth: usize,
    /// The plan.
    pub(crate) plan: &'a Plan,
    /// The plan's nodes as they are pinned.
    pub(crate) pinned: &'a [PinnedNode],
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Item<'a> {
    node: String,
    #[serde(borrow)]
    input: &'a RawValue,
}

/// Whether a result may have the reserved key; false is certain. A key may spell its first character as an escape.
pub(crate) fn may_send(output: &Payload) -> bool {
    let text = output.text();
    text.trim_start().starts_with('{') && (text.contains(SEND_KEY) || text.contains("\\u00"))
}

/// The tasks that a result asks for, none without the key. All or nothing: one bad item refuses the list.
///
/// # Errors
/// What is wrong, for the sender's failure.
pub(crate) fn read(output: &Payload, sender: &Sender<'_>) -> Result<Vec<Send>, String> {
    if !may_send(output) {
        return Ok(Vec::new());
    }
    let members = members(output.text()).map_err(|error| format!("the output is not JSON: {error}"))?;
    let Some(list) = members.get(SEND_KEY) else { return Ok(Vec::new()) };
    let items: Vec<&RawValue> = serde_json::from_str(list)
        .map_err(|_| format!("`{SEND_KEY}` is no list: give a list of {{\"node\", \"input\"}}"))?;
    if items.len() > TASKS_PER_RESULT_MAX {
        return Err(format!("`{SEND_KEY}` has {} items: send at most {TASKS_PER_RESULT_MAX} at once", items.len()));
    }
    if sender.sent + items.len() > TASKS_PER_PARENT_MAX {
        let total = sender.sent + items.len();
        return Err(format!(
            "`{SEND_KEY}` makes {total} tasks of one sender: a run has at most {TASKS_PER_PARENT_MAX}"
        ));
    }
    if sender.depth >= DEPTH_MAX && !items.is_empty() {
        return Err(format!("`{SEND_KEY}` comes from a task {DEPTH_MAX} levels deep, the deepest that there may be"));
    }
    let read = |(place, item): (usize, &&RawValue)| {
        read_item(item.get(), sender).map_err(|problem| format!("`{SEND_KEY}[{place}]` {problem}"))
    };
    items.iter().enumerate().map(read).collect()
}

fn read_item(text: &str, sender: &Sender<'_>) -> Result<Send, String> {
    let item: Item<'_> =
        serde_json::from_str(text).map_err(|error| format!("is not {{\"node\", \"input\"}}: {error}"))?;
    let name = shown(&item.node);
    let Some(node) = sender.plan.index_of(&item.node) else {
        return Err(format!("names node {name}, which the plan does not have"));
    };
    if node == sender.node {
        return Err(format!("names node {name}, which is the sender: send to another node"));
    }
    let target = &sender.pinned[node].tool;
    if !takes_tasks(target.kind()) {
        let kind = target.kind().as_str();
        return Err(format!("names node {name}, which is of kind {kind}: only a host or abstract node takes tasks"));
    }
    let input = compact(item.input.get());
    if !target.locked_params.is_empty() && !input.starts_with('{') {
        return Err(format!("gives node {name}, which has locked parameters, an input that is no object"));
    }
    Ok(Send { node, input: Payload::new(input) })
}

fn takes_tasks(kind: NodeKind) -> bool {
    match kind {
        NodeKind::Host | NodeKind::Abstract => true,
        NodeKind::Client | NodeKind::Subgraph => false,
    }
}
