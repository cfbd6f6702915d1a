//! What the runner counts beside its calls: every family is there from the start on, at zero, with a help text.

use std::time::Instant;

use crate::runs::RunStatus;

/// Runs by where they are here.
pub const RUNS: &str = "areev_runs";
/// Where a run that has not ended can be.
pub const PLACES: [&str; 4] = ["driven", "parked", "recovering", "quarantined"];
/// Effects that are being executed, or wait for the service that executes them.
const IN_FLIGHT: &str = "areev_effects_in_flight";
const COMMIT_SECONDS: &str = "areev_journal_commit_seconds";
const FINISHED: &str = "areev_runs_finished_total";

/// Counters without labels, and what they count.
const COUNTERS: [(&str, &str); 6] = [
    ("areev_runs_started_total", "Runs that were started."),
    ("areev_runs_quarantined_total", "Times that a run was quarantined: it is not driven, all others go on."),
    ("areev_recovery_failures_total", "Times that an unfinished run could not be taken over."),
    ("areev_journal_mended_total", "Times that a damaged journal was written anew at the start."),
    ("areev_effect_fuel_total", "Fuel that settled effects used."),
    ("areev_tokens_minted_total", "Egress tokens that brokers minted for effects."),
];
/// Gauges without labels, and what they show.
const GAUGES: [(&str, &str); 3] = [
    ("areev_runs_quarantined", "Runs that are not driven although they have not ended: /readyz names them."),
    ("areev_runs_recovery_failing", "Unfinished runs whose recovery failed and is tried again."),
    (IN_FLIGHT, "Effects that were sent out, or wait for the service that executes them."),
];
/// How runs end, as the label of their counter.
const ENDS: [RunStatus; 5] =
    [RunStatus::Completed, RunStatus::Failed, RunStatus::Canceled, RunStatus::Stalled, RunStatus::BudgetExhausted];

/// Registers all of them; counts are kept where there are some already.
pub fn register() {
    for (name, help) in COUNTERS {
        metrics::describe_counter!(name, help);
        metrics::counter!(name).increment(0);
    }
    for (name, help) in GAUGES {
        metrics::describe_gauge!(name, help);
        metrics::gauge!(name).increment(0.0);
    }
    metrics::describe_gauge!(RUNS, "Runs that have not ended, by where they are here.");
    for place in PLACES {
        metrics::gauge!(RUNS, "place" => place).increment(0.0);
    }
    metrics::describe_counter!(FINISHED, "Runs that ended, by how.");
    for status in ENDS {
        metrics::counter!(FINISHED, "outcome" => word(status)).increment(0);
    }
    metrics::describe_gauge!("areev_effects_waiting", "Effects that wait, by what for.");
    metrics::describe_gauge!(
        "areev_effects_waiting_for_silent_service",
        "Effects that wait for a service that does not answer."
    );
    metrics::describe_counter!("areev_effects_total", "Effects that settled, by executor and outcome.");
    metrics::describe_counter!("areev_refusals_total", "Calls that were refused, by the reason in their details.");
    metrics::describe_histogram!(
        COMMIT_SECONDS,
        "Time of one durable commit of the journal, for all runs that it is of."
    );
}

/// A run ended.
pub fn ended(status: RunStatus) {
    metrics::counter!(FINISHED, "outcome" => word(status)).increment(1);
}

/// A durable commit was made.
pub fn committed(began: Instant) {
    metrics::histogram!(COMMIT_SECONDS).record(began.elapsed().as_secs_f64());
}

/// An effect in flight, until this is dropped.
pub struct InFlight(());

impl InFlight {
    /// From now on.
    pub fn begin() -> Self {
        metrics::gauge!(IN_FLIGHT).increment(1.0);
        Self(())
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        metrics::gauge!(IN_FLIGHT).decrement(1.0);
    }
}

fn word(status: RunStatus) -> &'static str {
    match status {
        RunStatus::Completed => "completed",
        RunStatus::Failed => "failed",
        RunStatus::Canceled => "canceled",
        RunStatus::Stalled => "stalled",
        RunStatus::BudgetExhausted => "budget_exhausted",
        RunStatus::Running | RunStatus::Waiting | RunStatus::Paused | RunStatus::Quarantined => "other",
    }
}
