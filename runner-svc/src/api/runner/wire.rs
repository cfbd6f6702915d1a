//! From the runner's own types to the wire's.

use proto::runner::v1 as pb;
use runner_core::{budget, entry::Entry, key::EffectKey, lineage::Lineage, why::Waiting};

use crate::{
    api::stamp,
    dispatch::Wait,
    evidence::receipt::Receipt,
    journal::{RunHeader, RunInfo},
    runs::{AskView, RunStatus, RunView, Summary},
};

/// Longest final state that an answer carries, in bytes: with the rest of the run it fits into a message.
const OUTPUT_BYTES_MAX: usize = 16 * 1024 * 1024;
const _: () = assert!(OUTPUT_BYTES_MAX < proto::serve::MESSAGE_BYTES_MAX);

/// A run as it stands, with its own asks.
pub fn run(header: &RunHeader, view: &RunView) -> pb::Run {
    let carried = view.output().filter(|output| output.len_bytes() <= OUTPUT_BYTES_MAX);
    pb::Run {
        output_json: carried.map(|output| output.text().to_owned()).unwrap_or_default(),
        output_bytes: view.output().map_or(0, |output| output.len_bytes() as u64),
        asks: view.asks.iter().map(ask).collect(),
        waiting: view.waiting.iter().map(waiting).collect(),
        paused_by: view.paused.as_ref().map(|pause| pause.by.clone()).unwrap_or_default(),
        paused_at: view.paused.as_ref().map(|pause| at(pause.at_ms)),
        lineage: view.lineage.as_ref().map(lineage),
        ..row(header, &view.summary)
    }
}

/// The run that a fork goes on from.
pub fn lineage(lineage: &Lineage) -> pb::Lineage {
    pb::Lineage {
        run_id: lineage.run_id.as_str().to_owned(),
        superstep: lineage.superstep,
        sequence: lineage.sequence,
        head_hash: lineage.head.to_hex(),
        started_by: lineage.started_by.clone(),
    }
}

/// A run in a list: without output, asks and reasons to wait.
pub fn row(header: &RunHeader, summary: &Summary) -> pb::Run {
    pb::Run {
        run_id: header.run_id.clone(),
        namespace: header.namespace.clone(),
        plan_hash: header.plan_hash.to_hex(),
        status: status(summary.status).into(),
        output_json: String::new(),
        reason: summary.reason.clone(),
        failed_node: summary.failed_node.clone().unwrap_or_default(),
        principal: header.principal.clone(),
        started_at: Some(at(header.started_at_ms)),
        finished_at: summary.finished_at_ms.map(at),
        supersteps: summary.spent.supersteps,
        spent: Some(spent(&summary.spent)),
        asks: Vec::new(),
        events: summary.events,
        head_hash: summary.head.to_hex(),
        manifest_digest: header.manifest_digest.to_hex(),
        waiting: Vec::new(),
        parent_run_id: header.parent.as_ref().map(|parent| parent.run_id.clone()).unwrap_or_default(),
        parent_tool_call_id: header.parent.as_ref().map(|parent| parent.tool_call_id.to_hex()).unwrap_or_default(),
        receipt: None,
        paused_by: String::new(),
        paused_at: None,
        lineage: None,
        output_bytes: 0,
    }
}

/// The status document that the journal keeps.
pub fn summary(info: &RunInfo) -> Option<Summary> {
    serde_json::from_slice(&info.summary).ok()
}

/// A pending ask.
pub fn ask(ask: &AskView) -> pb::Ask {
    pb::Ask {
        tool_call_id: ask.tool_call_id.to_hex(),
        run_id: ask.run_id.clone(),
        node: ask.node.clone(),
        tool_name: ask.tool_name.clone(),
        tool_description: ask.description.clone(),
        input_json: ask.input.text().to_owned(),
        output_schema_json: ask.output_schema.clone().unwrap_or_default(),
        raised_at: Some(at(ask.raised_at_ms)),
        deadline: ask.deadline_ms.map(at),
    }
}

/// An event.
pub fn event(entry: &Entry) -> pb::Event {
    pb::Event {
        sequence: entry.sequence(),
        at: Some(at(entry.at_ms())),
        kind: entry.event().kind().to_owned(),
        body_json: entry.event().to_json(),
        previous_hash: entry.recorded().previous.to_hex(),
        hash: entry.hash().to_hex(),
    }
}

/// A time.
pub fn at(ms: u64) -> prost_types::Timestamp {
    stamp::of_ms(i64::try_from(ms).unwrap_or(i64::MAX))
}

/// A status.
pub fn status(status: RunStatus) -> pb::RunStatus {
    match status {
        RunStatus::Running => pb::RunStatus::Running,
        RunStatus::Waiting => pb::RunStatus::Waiting,
        RunStatus::Paused => pb::RunStatus::Paused,
        RunStatus::Completed => pb::RunStatus::Completed,
        RunStatus::Failed => pb::RunStatus::Failed,
        RunStatus::Canceled => pb::RunStatus::Canceled,
        RunStatus::Stalled => pb::RunStatus::Stalled,
        RunStatus::BudgetExhausted => pb::RunStatus::BudgetExhausted,
        RunStatus::Quarantined => pb::RunStatus::Quarantined,
    }
}

/// Bounds, both ways.
pub fn budgets(budgets: &budget::Budgets) -> pb::Budgets {
    pb::Budgets {
        max_supersteps: Some(budgets.max_supersteps),
        max_effects: budgets.max_effects,
        max_tool_calls: budgets.max_tool_calls,
        max_tokens: budgets.max_tokens,
        max_usd_micros: budgets.max_usd_micros,
        max_wall_ms: budgets.max_wall_ms,
        max_fuel: budgets.max_fuel,
        max_storage_bytes: budgets.max_storage_bytes,
        max_egress_calls: budgets.max_egress_calls,
    }
}

fn spent(spent: &budget::Spent) -> pb::Spent {
    pb::Spent {
        effects: spent.effects,
        tool_calls: spent.tool_calls,
        fuel: spent.fuel,
        egress_calls: spent.egress_calls,
        supersteps: spent.supersteps,
        tokens: spent.tokens,
        usd_micros: spent.usd_micros,
        wall_ms: spent.wall_ms,
        storage_bytes: spent.storage_bytes,
    }
}

/// What one of a run's effects waits for before anybody executes it.
pub fn wait(key: &EffectKey, wait: &Wait) -> pb::Waiting {
    waiting(&Waiting {
        what: format!("{}; {key} needs it", wait.what.text()),
        since_ms: wait.since_ms,
        unblocked_by: wait.what.unblocked_by().to_owned(),
        barred: Vec::new(),
    })
}

/// A receipt.
pub fn receipt(receipt: Receipt) -> pb::Receipt {
    pb::Receipt {
        outcome: receipt.outcome,
        events: receipt.events,
        head_hash: receipt.head_hash.to_hex(),
        manifest_digest: receipt.manifest_digest.to_hex(),
        public_key: receipt.public_key,
        signature: receipt.signature,
    }
}

/// One thing that a run waits for.
pub fn waiting(waiting: &Waiting) -> pb::Waiting {
    pb::Waiting {
        what: waiting.what.clone(),
        since: Some(at(waiting.since_ms)),
        unblocked_by: waiting.unblocked_by.clone(),
    }
}
