//! One `Execute` stream: start, exchanges that are durable before they are acknowledged, one outcome.

use std::time::Duration;

use proto::sandbox::v1::{
    Cancel, ExchangeAck, ExecuteRequest, ExecuteResponse, execute_request, execute_response,
    sandbox_service_client::SandboxServiceClient,
};
use runner_core::{event::Exchange, outcome::EffectOutcome};
use tokio::{
    sync::mpsc,
    time::{sleep_until, timeout},
};
use tokio_stream::wrappers::ReceiverStream;
use tonic::Streaming;

use super::{
    Delivery,
    blob::{self, Read},
    cut_while_running,
    relayed::{self, NoReply},
    words,
};
use crate::dispatch::{
    code::SharedCode,
    effect::{Ending, NotJournaled, Settled},
    service_client::{Trouble, Wire},
    until::Cut,
};

/// Messages to the sandbox that wait to be sent: the start, one acknowledgement, one cancel.
const OUTBOX: usize = 4;
/// Most exchanges of one effect, whatever its definition allows.
const EXCHANGES_MAX: usize = 100_000;
/// How long after the deadline the sandbox may still say by itself that the time ran out.
const OUTCOME_GRACE: Duration = Duration::from_secs(2);
/// How long a guest that is told to stop may take to be gone before the stream is dropped, which stops it too.
const STOP_GRACE: Duration = Duration::from_millis(500);

/// How long the sandbox may take to end a stream after its outcome.
const END_GRACE: Duration = Duration::from_millis(500);

/// Why there is no outcome.
pub(super) enum NoOutcome {
    /// The sandbox or the way to it.
    Trouble(Trouble),
    /// The effect has to stop.
    Cut(Cut),
    /// An exchange could not be made durable.
    NotJournaled,
}

/// What comes next on an open stream.
enum Next {
    Exchange(Exchange),
    Blob(Read),
    Call(Box<relayed::Call>),
    Outcome(Settled),
}

/// Executes one effect on one sandbox. Exchanges that became durable are added to the delivery's.
pub(super) async fn execute(
    mut client: SandboxServiceClient<Wire>,
    (url, source): (&str, &SharedCode),
    delivery: &mut Delivery<'_>,
) -> Result<Settled, NoOutcome> {
    let (outbox, messages) = mpsc::channel(OUTBOX);
    post(&outbox, execute_request::Message::Start(words::start(delivery))).await;
    let opened = delivery.until.first(Box::pin(client.execute(ReceiverStream::new(messages)))).await;
    let mut stream = match opened {
        Ok(Ok(reply)) => {
            delivery.waiter.goes_on();
            reply.into_inner()
        }
        Ok(Err(status)) => return Err(NoOutcome::Trouble(Trouble::of(&status))),
        Err(cut) => return Err(NoOutcome::Cut(cut)),
    };
    loop {
        let last_call = delivery.until.deadline + OUTCOME_GRACE;
        let next = tokio::select! {
            biased;
            () = delivery.until.cancel.cancelled() => {
                let last = stop(&outbox, stream, url).await;
                return Ok(Ending::Canceled.using(last.map(|last| last.usage).unwrap_or_default()));
            }
            message = stream.message() => next(message, url)?,
            () = sleep_until(last_call) => return Ok(out_of_time(delivery, stop(&outbox, stream, url).await)),
        };
        match next {
            Next::Outcome(settled) => {
                drop(outbox);
                let _ended = timeout(END_GRACE, to_the_end(&mut stream)).await;
                return Ok(settled);
            }
            Next::Exchange(exchange) => {
                let ordinal = in_order(exchange.ordinal, delivery).map_err(|text| broken(url, &text))?;
                if let Err(NotJournaled) = (delivery.journal)(exchange.clone()).await {
                    let _stopped = stop(&outbox, stream, url).await;
                    return Err(NoOutcome::NotJournaled);
                }
                delivery.recorded.push(exchange);
                post(&outbox, execute_request::Message::Ack(ExchangeAck { ordinal })).await;
            }
            Next::Call(call) => {
                in_order(call.ordinal, delivery).map_err(|text| broken(url, &text))?;
                match relayed::make(*call, delivery).await {
                    Ok(reply) => post(&outbox, execute_request::Message::Artifact(reply)).await,
                    Err(NoReply::Cut(cut)) => return Err(NoOutcome::Cut(cut)),
                    Err(NoReply::NotJournaled) => {
                        let _stopped = stop(&outbox, stream, url).await;
                        return Err(NoOutcome::NotJournaled);
                    }
                }
            }
            Next::Blob(read) => {
                if !read.is_recorded(delivery) {
                    in_order(read.ordinal, delivery).map_err(|text| broken(url, &text))?;
                }
                let Ok(parts) = blob::answer(&read, delivery, source).await else {
                    let _stopped = stop(&outbox, stream, url).await;
                    return Err(NoOutcome::NotJournaled);
                };
                let sent = parts.into_iter().map(execute_request::Message::Blob);
                if let Err(cut) = delivery.until.first(Box::pin(post_all(&outbox, sent))).await {
                    return Err(NoOutcome::Cut(cut));
                }
            }
        }
    }
}

/// Reads the trailers. A stream that is dropped before them is reset; and of those the transport takes only so many before it
/// closes the connection, and every other call on it.
async fn to_the_end(stream: &mut Streaming<ExecuteResponse>) {
    while let Ok(Some(_)) = stream.message().await {}
}

fn next(message: Result<Option<ExecuteResponse>, tonic::Status>, url: &str) -> Result<Next, NoOutcome> {
    match message {
        Ok(Some(ExecuteResponse { message: Some(execute_response::Message::Outcome(outcome)) })) => {
            Ok(Next::Outcome(words::settled(outcome, url)))
        }
        Ok(Some(ExecuteResponse { message: Some(execute_response::Message::Exchange(exchange)) })) => {
            words::exchange(exchange).map(Next::Exchange).map_err(|text| broken(url, &text))
        }
        Ok(Some(ExecuteResponse { message: Some(execute_response::Message::Blob(read)) })) => {
            Read::of(&read).map(Next::Blob).map_err(|text| broken(url, &text))
        }
        Ok(Some(ExecuteResponse { message: Some(execute_response::Message::Artifact(call)) })) => {
            let call = relayed::Call::of(call).map_err(|text| broken(url, &text))?;
            Ok(Next::Call(Box::new(call)))
        }
        Ok(Some(ExecuteResponse { message: None })) => Err(broken(url, "an empty message came")),
        Ok(None) => Err(NoOutcome::Trouble(Trouble::Lost("the stream ended without an outcome".to_owned()))),
        // The call was taken: that the sandbox goes away now does not mean that nothing began.
        Err(status) => Err(NoOutcome::Trouble(match Trouble::of(&status) {
            Trouble::Unavailable(text) => Trouble::Lost(text),
            trouble => trouble,
        })),
    }
}

/// Exchanges are numbered upwards, after those that are recorded.
fn in_order(ordinal: u32, delivery: &Delivery<'_>) -> Result<u32, String> {
    let least = delivery.recorded.last().map_or(0, |last| last.ordinal.saturating_add(1));
    if ordinal < least || delivery.recorded.len() >= EXCHANGES_MAX {
        return Err(format!("exchange {ordinal} came where {least} or a later one was due"));
    }
    Ok(ordinal)
}

/// How an effect ends whose time ran out: with a timeout, whatever the sandbox still said.
fn out_of_time(delivery: &Delivery<'_>, last: Option<Settled>) -> Settled {
    let timeout = cut_while_running(delivery, Cut::Deadline);
    match last {
        Some(Settled { ending: Ending::Outcome(EffectOutcome::Completed { output }), usage, .. }) => {
            Settled { late: Some(Box::new((output, usage))), ..timeout.into() }
        }
        Some(Settled { usage, .. }) => timeout.using(usage),
        None => timeout.into(),
    }
}

/// Tells the sandbox to stop, and waits a moment for its last words: that it did, and what was used.
async fn stop(
    outbox: &mpsc::Sender<ExecuteRequest>,
    mut stream: Streaming<ExecuteResponse>,
    url: &str,
) -> Option<Settled> {
    post(outbox, execute_request::Message::Cancel(Cancel {})).await;
    let last_words = async {
        while let Ok(Some(message)) = stream.message().await {
            if let Ok(Next::Outcome(settled)) = next(Ok(Some(message)), url) {
                return Some(settled);
            }
        }
        None
    };
    timeout(STOP_GRACE, last_words).await.ok().flatten()
}

async fn post_all(outbox: &mpsc::Sender<ExecuteRequest>, messages: impl Iterator<Item = execute_request::Message>) {
    for message in messages {
        post(outbox, message).await;
    }
}

/// The stream's end is noticed where its answers are read.
async fn post(outbox: &mpsc::Sender<ExecuteRequest>, message: execute_request::Message) {
    let _stream_is_gone = outbox.send(ExecuteRequest { message: Some(message) }).await;
}

fn broken(url: &str, text: &str) -> NoOutcome {
    tracing::error!(sandbox = url, text, "the sandbox breaks the protocol");
    NoOutcome::Trouble(Trouble::Refused { reason: None, text: format!("it broke the protocol: {text}") })
}
