//! The effects of a plan's runs, one row an effect, each with its address as a grain.

use std::{num::NonZeroUsize, sync::Arc};

use content_digest::Digest;
use lru::LruCache;
use parking_lot::Mutex;
use proto::{
    fault::Fault,
    runner::v1::{ListStepActionsRequest, ListStepActionsResponse, StepAction},
};
use runner_core::{effects::EffectRow, manifest::Manifest, outcome::EffectOutcome};
use serde_json::{Map, Value};

use super::{load_fault, read_fault, start_run};
use crate::{
    api::{catalog::StepActions, page},
    catalogue::grain::{Execution, ExecutionStatus, Grain},
    journal::{Journal, ReadError, RunInfo},
    runs::load,
};

/// Addresses of listed rows that GetGrain finds again.
const SEEN_MAX: NonZeroUsize = NonZeroUsize::new(65_536).expect("not zero");
/// What a child run's effect is called where a tool's name is due: it has no tool.
const CHILD_RUN: &str = "child_run";
/// Runs that one page looks at.
const RUNS_MAX: usize = 1000;

/// Reads step actions off the journal.
pub struct RunStepActions {
    journal: Journal,
    /// Which effect a listed grain tells of: run and intent.
    seen: Mutex<LruCache<Digest, (String, u64)>>,
}

/// Where a page begins: before which run, and behind how many of its effects.
struct Place {
    run: Option<u64>,
    effect: u64,
}

impl RunStepActions {
    /// Over this journal.
    pub fn new(journal: Journal) -> Self {
        Self { journal, seen: Mutex::new(LruCache::new(SEEN_MAX)) }
    }

    fn page(&self, asked: &ListStepActionsRequest) -> Result<ListStepActionsResponse, Fault> {
        let plan = start_run::plan_hash(&asked.plan_hash)?;
        let limit = page::size(asked.page_size)?;
        let query = page::Query::of("ListStepActions", [&asked.namespace, &asked.plan_hash, &asked.run_id]);
        let place = Place::read(query, &asked.page_token)?;
        let mut step_actions = Vec::new();
        let mut skip = place.effect;
        let mut before = place.run;
        for (number, info) in self.runs(asked, plan, before)? {
            let run_id = info.header.run_id.clone();
            let (manifest, effects) = self.read(&run_id)?;
            for (index, effect) in effects.iter().enumerate().skip(usize::try_from(skip).unwrap_or(usize::MAX)) {
                if step_actions.len() == limit {
                    let next = Place { run: before, effect: index as u64 };
                    return Ok(ListStepActionsResponse { step_actions, next_page_token: next.token(query) });
                }
                step_actions.push(self.row(&manifest, effect));
            }
            (skip, before) = (0, Some(number));
        }
        Ok(ListStepActionsResponse { step_actions, next_page_token: String::new() })
    }

    /// The plan's runs, newest first; or the one that is asked for.
    fn runs(
        &self,
        asked: &ListStepActionsRequest,
        plan: Digest,
        before: Option<u64>,
    ) -> Result<Vec<(u64, RunInfo)>, Fault> {
        if asked.run_id.is_empty() {
            let rows = self.journal.list_runs_of_plan(&asked.namespace, plan, before, RUNS_MAX).map_err(read_fault)?;
            return Ok(rows.into_iter().filter_map(|row| Some((row.number, row.run.ok()?))).collect());
        }
        match self.journal.run(&asked.run_id) {
            Ok(info) if info.header.namespace == asked.namespace && info.header.plan_hash == plan => {
                Ok(vec![(0, info)])
            }
            Ok(_) | Err(ReadError::NotFound(_)) => Err(super::not_found(&asked.namespace, &asked.run_id)),
            Err(error) => Err(read_fault(error)),
        }
    }

    fn read(&self, run_id: &str) -> Result<(Arc<Manifest>, Vec<EffectRow>), Fault> {
        let (state, effects) = load::effects(&self.journal, run_id).map_err(load_fault)?;
        Ok((Arc::clone(state.manifest()), effects))
    }

    fn row(&self, manifest: &Manifest, effect: &EffectRow) -> StepAction {
        let run_id = manifest.run_id.as_str();
        let grain = grain(manifest, effect);
        if let Some(grain) = &grain {
            self.seen.lock().put(grain.hash(), (run_id.to_owned(), effect.intent_sequence));
        }
        let (cause, detail) = effect.failure().unwrap_or_default();
        StepAction {
            run_id: run_id.to_owned(),
            node: effect.key.node.clone(),
            task_path: effect.key.task_path.clone(),
            attempt: effect.key.attempt,
            effect_seq: effect.key.effect_seq,
            tool_call_id: effect.tool_call_id.to_hex(),
            grain_hash: grain.map(|grain| grain.hash().to_hex()).unwrap_or_default(),
            status: effect.status().to_owned(),
            tool_content: effect.output().unwrap_or_default().to_owned(),
            failure_cause: cause.to_owned(),
            failure_detail: detail.to_owned(),
        }
    }
}

#[tonic::async_trait]
impl StepActions for RunStepActions {
    async fn list(&self, request: ListStepActionsRequest) -> Result<ListStepActionsResponse, Fault> {
        tokio::task::block_in_place(|| self.page(&request))
    }

    fn grain(&self, hash: &Digest) -> Result<Option<Grain>, Fault> {
        let Some((run_id, sequence)) = self.seen.lock().get(hash).cloned() else { return Ok(None) };
        let (manifest, effects) = self.read(&run_id)?;
        let effect = effects.iter().find(|effect| effect.intent_sequence == sequence);
        // An effect that settled since it was listed is another grain now.
        Ok(effect.and_then(|effect| grain(&manifest, effect)).filter(|grain| grain.hash() == *hash))
    }
}

/// An effect as a grain; none if its texts break the grain format, which the log says.
fn grain(manifest: &Manifest, effect: &EffectRow) -> Option<Grain> {
    let run_id = manifest.run_id.as_str();
    let status = match effect.outcome() {
        None => ExecutionStatus::Pending,
        Some(EffectOutcome::Completed { output }) => ExecutionStatus::Completed { content: output.text().to_owned() },
        Some(EffectOutcome::Failed { failure }) => ExecutionStatus::Failed {
            cause: failure.cause.as_str().to_owned(),
            detail: failure.detail.text().replace('\0', "\u{fffd}"),
        },
    };
    let facts = Map::from_iter([
        ("run_id".to_owned(), Value::from(run_id)),
        ("attempt".to_owned(), Value::from(effect.key.attempt)),
        ("effect_seq".to_owned(), Value::from(effect.key.effect_seq)),
        ("effect_kind".to_owned(), Value::from(effect.key.kind.as_str())),
    ]);
    let input = effect.input.parse().ok();
    let at_ms = effect.settled.as_ref().map_or(effect.intent_ms, |settled| settled.at_ms);
    let execution = Execution {
        namespace: &manifest.namespace,
        created_at_ms: i64::try_from(at_ms).unwrap_or(i64::MAX),
        tool_name: if effect.child_run.is_some() { CHILD_RUN } else { &effect.tool_name },
        tool_call_id: &effect.tool_call_id.to_hex(),
        input: input.as_ref(),
        status,
        definition_hash: Some(&effect.definition.to_hex()),
        plan_hash: Some(&manifest.plan_hash.to_hex()),
        node: &effect.key.node,
        author: Some(&manifest.principal),
        facts,
    };
    execution.seal().inspect_err(|bad| tracing::warn!(run_id, %bad, "an effect cannot be written as a grain")).ok()
}

impl Place {
    fn read(query: page::Query, token: &str) -> Result<Self, Fault> {
        let Some(bytes) = query.place(token)? else { return Ok(Self { run: None, effect: 0 }) };
        let (run, effect) = bytes.split_first_chunk::<8>().ok_or_else(page::bad_token)?;
        let effect = <[u8; 8]>::try_from(effect).map_err(|_| page::bad_token())?;
        let run = u64::from_be_bytes(*run);
        // Run numbers begin at 1: 0 is the place before the newest.
        Ok(Self { run: (run > 0).then_some(run), effect: u64::from_be_bytes(effect) })
    }

    fn token(&self, query: page::Query) -> String {
        let mut bytes = self.run.unwrap_or(0).to_be_bytes().to_vec();
        bytes.extend_from_slice(&self.effect.to_be_bytes());
        query.token(Some(bytes))
    }
}
