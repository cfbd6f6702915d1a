//! A model's turn: one request through the broker, which attaches the key; the answer is durable before anything reads it.

use content_digest::Digest;
use proto::broker::v1::FetchRequest;
use runner_core::{
    event::Exchange,
    model::{ModelPin, read_response},
    outcome::{EffectOutcome, Usage},
    payload::Payload,
    text::cut,
};
use serde::{Deserialize, Serialize};

use super::{
    broker_client::{Granted, calling},
    effect::{Effect, Ending, JournalExchange, Settled},
    sandbox_client::record_of,
    service_client::text_of,
    until::Until,
};

/// How much of a refusing model's answer a failure shows, in bytes.
const EXCERPT_BYTES_MAX: usize = 256;

/// What the upstream answered, as the journal keeps it.
#[derive(Serialize, Deserialize)]
struct Reply {
    status: u32,
    body: String,
}

/// Asks the model, unless an earlier delivery was answered and that is recorded.
pub(super) async fn ask(
    granted: &Granted,
    (effect, model): (&Effect, &ModelPin),
    journal: &JournalExchange<'_>,
    until: Until<'_>,
) -> Settled {
    let response = match effect.recorded.first() {
        Some(exchange) => exchange.response.clone(),
        None => {
            let exchange = match fetched(granted, (effect, model), &until).await {
                Ok(exchange) => exchange,
                Err(ending) => return ending.into(),
            };
            let response = exchange.response.clone();
            if journal(exchange).await.is_err() {
                return Ending::NotJournaled.into();
            }
            response
        }
    };
    read(model, effect, &response)
}

async fn fetched(
    granted: &Granted,
    (effect, model): (&Effect, &ModelPin),
    until: &Until<'_>,
) -> Result<Exchange, Ending> {
    let body = effect.input.text().as_bytes().to_vec();
    let request = FetchRequest {
        token: granted.egress().expose_token().to_owned(),
        url: model.url.clone(),
        method: "POST".to_owned(),
        credential: model.credential.clone(),
        body,
        content_type: "application/json".to_owned(),
        effect: Some(calling(effect)),
        ..FetchRequest::default()
    };
    let answer = until.first(granted.fetch(request)).await.map_err(|cut| until.ending(cut, "the model was asked"))?;
    let answer = answer.map_err(|status| {
        Ending::executor_error(format_args!("the model {} could not be asked: {}", model.name, text_of(&status)))
    })?;
    let body = String::from_utf8(answer.body)
        .map_err(|_| Ending::executor_error(format_args!("the model {} answered with no UTF-8", model.name)))?;
    let reply = Reply { status: answer.status, body };
    Ok(Exchange {
        ordinal: 0,
        request: Digest::of(effect.input.text()),
        response: Payload::new(serde_json::to_string(&reply).expect("a reply has a number and a text")),
        record: answer.record.map(|record| record_of(record).to_payload()),
        refused: false,
        blobs: Vec::new(),
    })
}

fn read(model: &ModelPin, effect: &Effect, response: &Payload) -> Settled {
    let Ok(reply) = serde_json::from_str::<Reply>(response.text()) else {
        return Ending::executor_error("the recorded answer of the model does not read").into();
    };
    if reply.status != 200 {
        let (name, status, excerpt) = (&model.name, reply.status, cut(reply.body.trim(), EXCERPT_BYTES_MAX));
        return Ending::executor_error(format_args!("the model {name} answered with status {status}: {excerpt}"))
            .into();
    }
    match read_response(reply.body.as_bytes()) {
        Ok((output, tokens)) => {
            let usd_micros = model.cost(tokens, effect.input.len_bytes() as u64, output.len_bytes() as u64);
            let usage = Usage { tokens: tokens.total, usd_micros, ..Usage::default() };
            Ending::Outcome(EffectOutcome::Completed { output }).using(usage)
        }
        Err(bad) => Ending::executor_error(bad).into(),
    }
}
