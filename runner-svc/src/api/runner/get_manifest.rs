//! `GetManifest`: what the run froze at start.

use proto::{
    fault::{Fault, Reason},
    runner::v1::{GetManifestRequest, GetManifestResponse, Manifest, OnDangling, PinnedNode},
};
use runner_core::{
    event::Event,
    manifest,
    payload::Payload,
    pinned::{self, Executor},
};
use tonic::Request;

use super::{RunnerApi, load_fault, wire};
use crate::{
    access::Permission,
    runs::load::{self, LoadError},
};

/// The manifest.
pub async fn handle(api: &RunnerApi, request: Request<GetManifestRequest>) -> Result<GetManifestResponse, Fault> {
    let asked = request.get_ref();
    api.allowed(&request, &asked.namespace, Permission::RunRead)?;
    let info = api.header(&asked.namespace, &asked.run_id)?;
    let (journal, run_id) = (api.parts.runs.shared().journal.clone(), info.header.run_id.clone());
    let reading = tokio::task::spawn_blocking(move || first(&journal, &run_id));
    let found = reading.await.map_err(|panic| Fault::internal(&panic))?.map_err(load_fault)?;
    let (text, input) = found.ok_or_else(|| damaged("the journal does not begin with RunStarted"))?;
    let manifest: manifest::Manifest = serde_json::from_str(text.text())
        .map_err(|cause| damaged(&format!("the manifest does not decode: {cause}")))?;
    Ok(GetManifestResponse { manifest: Some(shown(&manifest, &text, &input)) })
}

fn first(journal: &crate::journal::Journal, run_id: &str) -> Result<Option<(Payload, Payload)>, LoadError> {
    let mut found = None;
    load::entries(journal, run_id, 0, |entry| {
        if let Event::RunStarted { manifest, input } = entry.event() {
            found = Some((manifest.clone(), input.clone()));
        }
        Ok::<_, LoadError>(false)
    })?;
    Ok(found)
}

fn damaged(problem: &str) -> Fault {
    Fault::new(Reason::ManifestMismatch, problem)
}

fn shown(manifest: &manifest::Manifest, text: &Payload, input: &Payload) -> Manifest {
    let on_dangling = match manifest.on_dangling {
        manifest::OnDangling::Redispatch => OnDangling::Redispatch,
        manifest::OnDangling::Fail => OnDangling::Fail,
        manifest::OnDangling::Ask => OnDangling::Ask,
    };
    Manifest {
        run_id: manifest.run_id.as_str().to_owned(),
        namespace: manifest.namespace.clone(),
        plan_hash: manifest.plan_hash.to_hex(),
        principal: manifest.principal.clone(),
        initiator: manifest.initiator.clone().unwrap_or_default(),
        manifest_digest: text.digest().to_hex(),
        nodes: manifest.nodes.iter().map(|node| pinned(node, manifest)).collect(),
        budgets: Some(wire::budgets(&manifest.budgets)),
        on_dangling: on_dangling.into(),
        lineage: manifest.lineage.as_ref().map(wire::lineage),
        durability: manifest.durability.as_str().to_owned(),
        policy_digest: manifest.policy_digest.map(|digest| digest.to_hex()).unwrap_or_default(),
        native_isolation: manifest.native_isolation.clone(),
        manifest_json: text.text().to_owned(),
        input_json: input.text().to_owned(),
    }
}

fn pinned(node: &pinned::PinnedNode, manifest: &manifest::Manifest) -> PinnedNode {
    let tool = &node.tool;
    let (uri, runtime, limits, capabilities) = match &tool.executor {
        Executor::Code { digest, runtime, limits, capabilities } => {
            let limits = limits.map(|limits| serde_json::to_string(&limits).expect("limits are integers by name"));
            (digest.to_uri(), runtime.as_str().to_owned(), limits, capabilities.as_ref().map(ToString::to_string))
        }
        Executor::HostTool | Executor::Person | Executor::ChildRun | Executor::Model { .. } => Default::default(),
    };
    let is_plan = tool.executor == Executor::ChildRun;
    PinnedNode {
        node: node.node.clone(),
        kind: tool.kind().as_str().to_owned(),
        definition_hash: if is_plan { String::new() } else { tool.definition.to_hex() },
        plan_hash: if is_plan { tool.definition.to_hex() } else { String::new() },
        tool_name: tool.tool_name.clone(),
        executor_uri: uri,
        runtime,
        runtime_limits_json: limits.unwrap_or_default(),
        capabilities_json: capabilities.unwrap_or_default(),
        retries: manifest.plan.retries.get(&node.node).copied().unwrap_or_default(),
        effect_class: tool.effect_class().map(|class| class.as_str().to_owned()).unwrap_or_default(),
    }
}
