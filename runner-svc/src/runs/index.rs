//! What the store says of a run beside its events, and whether they make it so.

use content_digest::Digest;
use runner_core::{manifest::Manifest, state::State};

use super::{children, view::Summary};
use crate::journal::{RunHeader, RunInfo};

/// What a run is, from what it froze.
pub(super) fn header_of(manifest: &Manifest, manifest_digest: Digest) -> RunHeader {
    RunHeader {
        run_id: manifest.run_id.as_str().to_owned(),
        namespace: manifest.namespace.clone(),
        plan_hash: manifest.plan_hash,
        started_at_ms: manifest.started_at_ms,
        principal: manifest.principal.clone(),
        manifest_digest,
        input_digest: manifest.input_digest,
        parent: children::parent_header(manifest),
    }
}

/// What of a run's header is not what its first event froze; none when it holds.
pub fn header_differs(header: &RunHeader, state: &State) -> Option<String> {
    let frozen = header_of(state.manifest(), state.manifest_payload().digest());
    let same = [
        ("run id", header.run_id == frozen.run_id),
        ("namespace", header.namespace == frozen.namespace),
        ("plan", header.plan_hash == frozen.plan_hash),
        ("time of the start", header.started_at_ms == frozen.started_at_ms),
        ("principal", header.principal == frozen.principal),
        ("manifest", header.manifest_digest == frozen.manifest_digest),
        ("input", header.input_digest == frozen.input_digest),
        ("parent", header.parent == frozen.parent),
    ];
    let wrong = same.into_iter().find(|(_, same)| !same).map(|(field, _)| field)?;
    Some(format!("the run's header has another {wrong} than its first event"))
}

/// What the store shows of a run that has ended and its events do not make so; none when it holds. That the last event has
/// the hash that the store holds is not asked here, nor how an earlier release worded a reason.
pub fn end_differs(info: &RunInfo, state: &State) -> Option<String> {
    let ended = state.outcome().is_some();
    if info.finished != ended {
        let (says, make) = if info.finished { ("has ended", "do not end it") } else { ("has not ended", "end it") };
        return Some(format!("the store says that the run {says}, and its events {make}"));
    }
    if !ended {
        return None;
    }
    let Ok(shown) = serde_json::from_slice::<Summary>(&info.summary) else {
        return Some("the status that the store shows cannot be read".to_owned());
    };
    let made = Summary::of(state);
    let code = |reason: &str| reason.split_once(": ").map_or("", |(code, _)| code).to_owned();
    let same = [
        ("status", shown.status == made.status),
        ("code", code(&shown.reason) == code(&made.reason)),
        ("failed node", shown.failed_node == made.failed_node),
        ("time of the end", shown.finished_at_ms == made.finished_at_ms),
        ("spending", shown.spent == made.spent),
        ("number of events", shown.events == made.events),
    ];
    let wrong = same.into_iter().find(|(_, same)| !same).map(|(field, _)| field)?;
    (shown.head == made.head).then(|| format!("the store shows another {wrong} than the run's events make"))
}
