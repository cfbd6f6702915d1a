//! Exchanges the payloads of an event for references and back, one by one in a fixed order.

use super::{Event, Exchange, Fired};
use crate::outcome::{EffectOutcome, Failure, RunOutcome};

/// The same event with every payload replaced by what `swap` makes of it.
pub(crate) fn event<P, Q, E>(event: &Event<P>, swap: &mut impl FnMut(&P) -> Result<Q, E>) -> Result<Event<Q>, E> {
    Ok(match event {
        Event::RunStarted { manifest, input } => Event::RunStarted { manifest: swap(manifest)?, input: swap(input)? },
        Event::SuperstepOpened { superstep } => Event::SuperstepOpened { superstep: *superstep },
        Event::IntentRecorded { key, input, class } => {
            Event::IntentRecorded { key: key.clone(), input: *input, class: *class }
        }
        Event::InputRefused { key, input, failure: refused } => {
            Event::InputRefused { key: key.clone(), input: *input, failure: failure(refused, swap)? }
        }
        Event::ExchangeRecorded { key, exchange } => {
            Event::ExchangeRecorded { key: key.clone(), exchange: exchanged(exchange, swap)? }
        }
        Event::ResultRecorded { key, outcome, usage } => {
            Event::ResultRecorded { key: key.clone(), outcome: effect_outcome(outcome, swap)?, usage: *usage }
        }
        Event::ResultDiscarded { key, output, usage } => {
            Event::ResultDiscarded { key: key.clone(), output: *output, usage: *usage }
        }
        Event::EffectLost { key, why } => Event::EffectLost { key: key.clone(), why: why.clone() },
        Event::AskRaised { key, input, deadline_ms } => {
            Event::AskRaised { key: key.clone(), input: *input, deadline_ms: *deadline_ms }
        }
        Event::AskAnswered { key, by, outcome } => {
            Event::AskAnswered { key: key.clone(), by: by.clone(), outcome: effect_outcome(outcome, swap)? }
        }
        Event::AskRejected { key, by, reason } => {
            Event::AskRejected { key: key.clone(), by: by.clone(), reason: reason.clone() }
        }
        Event::RetryScheduled { task_path, node, attempt, due_ms } => {
            let (task_path, node) = (task_path.clone(), node.clone());
            Event::RetryScheduled { task_path, node, attempt: *attempt, due_ms: *due_ms }
        }
        Event::SuperstepClosed { superstep, fired: edges, state } => {
            Event::SuperstepClosed { superstep: *superstep, fired: fired(edges, swap)?, state: *state }
        }
        Event::CancelRequested { by, reason } => Event::CancelRequested { by: by.clone(), reason: reason.clone() },
        Event::TokensRevoked { tokens } => Event::TokensRevoked { tokens: *tokens },
        Event::PauseRequested { by } => Event::PauseRequested { by: by.clone() },
        Event::Resumed { by } => Event::Resumed { by: by.clone() },
        Event::Redelivered { key } => Event::Redelivered { key: key.clone() },
        Event::EgressRefused { key, record } => Event::EgressRefused { key: key.clone(), record: swap(record)? },
        Event::EgressCalled { key, record } => Event::EgressCalled { key: key.clone(), record: swap(record)? },
        Event::LeaseTaken { holder, fence } => Event::LeaseTaken { holder: holder.clone(), fence: *fence },
        Event::RunFinished { outcome, spent } => {
            Event::RunFinished { outcome: run_outcome(outcome, swap)?, spent: *spent }
        }
    })
}

fn exchanged<P, Q, E>(exchange: &Exchange<P>, swap: &mut impl FnMut(&P) -> Result<Q, E>) -> Result<Exchange<Q>, E> {
    Ok(Exchange {
        ordinal: exchange.ordinal,
        request: exchange.request,
        response: swap(&exchange.response)?,
        record: exchange.record.as_ref().map(swap).transpose()?,
        refused: exchange.refused,
        blobs: exchange.blobs.clone(),
    })
}

fn fired<P, Q, E>(edges: &Fired<P>, swap: &mut impl FnMut(&P) -> Result<Q, E>) -> Result<Fired<Q>, E> {
    Ok(match edges {
        Fired::Here(edges) => Fired::Here(edges.clone()),
        Fired::Beside(edges) => Fired::Beside(swap(edges)?),
    })
}

fn effect_outcome<P, Q, E>(
    outcome: &EffectOutcome<P>,
    swap: &mut impl FnMut(&P) -> Result<Q, E>,
) -> Result<EffectOutcome<Q>, E> {
    Ok(match outcome {
        EffectOutcome::Completed { output } => EffectOutcome::Completed { output: swap(output)? },
        EffectOutcome::Failed { failure: failed } => EffectOutcome::Failed { failure: failure(failed, swap)? },
    })
}

fn run_outcome<P, Q, E>(
    outcome: &RunOutcome<P>,
    swap: &mut impl FnMut(&P) -> Result<Q, E>,
) -> Result<RunOutcome<Q>, E> {
    Ok(match outcome {
        RunOutcome::Completed { output } => RunOutcome::Completed { output: swap(output)? },
        RunOutcome::Failed { node, failure: failed } => {
            RunOutcome::Failed { node: node.clone(), failure: failure(failed, swap)? }
        }
        RunOutcome::Canceled { by, reason } => RunOutcome::Canceled { by: by.clone(), reason: reason.clone() },
        RunOutcome::Stalled { node } => RunOutcome::Stalled { node: node.clone() },
        RunOutcome::BudgetExhausted { axis, limit } => RunOutcome::BudgetExhausted { axis: *axis, limit: *limit },
    })
}

fn failure<P, Q, E>(failure: &Failure<P>, swap: &mut impl FnMut(&P) -> Result<Q, E>) -> Result<Failure<Q>, E> {
    let Failure { cause, detail, code, permanent } = failure;
    Ok(Failure { cause: *cause, detail: swap(detail)?, code: *code, permanent: *permanent })
}
