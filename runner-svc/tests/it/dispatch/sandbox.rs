//! Code by a sandbox service that works.

use std::path::Path;

use content_digest::Digest;
use futures::FutureExt as _;
use proto::{
    fault::{Fault, Reason},
    sandbox::v1::{self as wire, OutcomeKind},
};
use runner_core::{
    event::Exchange,
    outcome::{FailureCause, FailureCode},
    payload::Payload,
    pinned::{Runtime, RuntimeLimits},
};
use runner_svc::dispatch::{DispatchConfig, Dispatcher, Ending, NotJournaled};
use tokio_util::sync::CancellationToken;

use super::{
    fake_broker::FakeBroker,
    fake_sandbox::{Act, FakeSandbox, completed, ended, reply_of},
    rig::*,
};

#[tokio::test]
async fn a_pure_module_is_executed_with_its_frozen_limits_and_no_egress() {
    let sandbox = FakeSandbox::playing([vec![completed("{\"n\": 18446744073709551615}")]]).await;
    let broker = FakeBroker::granting("token-1").await;
    let dispatcher = with_broker(&sandbox, &broker);
    let limits = RuntimeLimits { fuel: Some(5000), max_pages: Some(0), ..RuntimeLimits::default() };
    let settled = send(&dispatcher, code_with(Runtime::Wasm, Some(limits))).await;
    assert_eq!(output(&settled), "{\"n\": 18446744073709551615}");
    assert_eq!((settled.usage.fuel, settled.usage.peak_memory_bytes), (4711, 65536));

    let start = &sandbox.starts()[0];
    assert_eq!(start.module_digest, Digest::of(MODULE).to_uri());
    assert_eq!(start.runtime(), wire::Runtime::Wasm32Areev);
    let told = start.limits.unwrap();
    assert_eq!((told.fuel, told.max_pages, told.max_calls), (Some(5000), Some(0), None));
    assert_eq!((start.input_json.as_str(), start.tool_name.as_str()), ("{\"q\":7}", "work"));
    let named = start.effect.clone().unwrap();
    assert_eq!((named.run_id.as_str(), named.node.as_str(), named.attempt), ("run-1", "work", 1));
    assert!(start.egress.is_none() && start.deadline.is_some());
    assert_eq!(broker.minted().len(), 0, "nobody is asked for a right that a pure module cannot have");
}

#[tokio::test]
async fn a_call_gets_no_more_fuel_than_its_run_has_left() {
    let sandbox = FakeSandbox::playing([vec![completed("1")]]).await;
    let limits = RuntimeLimits { fuel: Some(5000), ..RuntimeLimits::default() };
    let mut effect = code_with(Runtime::Wasm, Some(limits));
    effect.fuel_left = Some(12);
    send(&sandboxes(&[&sandbox.url]), effect).await;
    assert_eq!(sandbox.starts()[0].limits.unwrap().fuel, Some(12));
}

#[tokio::test]
async fn a_sandbox_without_the_module_gets_it_and_is_called_again() {
    let sandbox = FakeSandbox::playing([vec![Act::NeedModule, completed("1")]]).await;
    assert_eq!(output(&send(&sandboxes(&[&sandbox.url]), code(Runtime::Wasm)).await), "1");
    assert_eq!(sandbox.log.all(), ["start", "upload", "start"]);
}

#[tokio::test]
async fn many_effects_of_a_new_module_upload_it_once() {
    let sandbox = FakeSandbox::playing([vec![Act::NeedModule, completed("1")]]).await;
    let dispatcher = sandboxes(&[&sandbox.url]);
    let all = futures::future::join_all((0..20).map(|_| send(&dispatcher, code(Runtime::Wasm)))).await;
    assert!(all.iter().all(|settled| output(settled) == "1"));
    assert_eq!(sandbox.log.all().iter().filter(|line| *line == "upload").count(), 1);
}

#[tokio::test]
async fn a_sandbox_that_never_keeps_the_module_is_given_up() {
    let missing = Fault::new(Reason::ModuleNotFound, "it is not here");
    let sandbox = FakeSandbox::playing([vec![Act::Refuse(missing)]]).await;
    let settled = send(&sandboxes(&[&sandbox.url]), code(Runtime::Wasm)).await;
    assert!(detail(&settled).contains("uploaded 2 times"), "{}", detail(&settled));
}

#[tokio::test]
async fn a_module_that_the_catalogue_lost_is_named() {
    let sandbox = FakeSandbox::playing([vec![Act::NeedModule]]).await;
    let dispatcher = Dispatcher::new(
        DispatchConfig { sandbox: Some(at(&[&sandbox.url])), ..config(Path::new("/nonexistent")) },
        std::sync::Arc::new(Damaged),
    )
    .unwrap();
    let settled = send(&dispatcher, code(Runtime::Wasm)).await;
    assert!(detail(&settled).contains(&Digest::of(MODULE).to_uri()), "{}", detail(&settled));
    assert!(detail(&settled).contains("damaged"), "{}", detail(&settled));
}

struct Damaged;

impl runner_svc::dispatch::CodeSource for Damaged {
    fn read(&self, _: &Digest) -> Result<Vec<u8>, runner_svc::dispatch::CodeUnreadable> {
        Ok(b"other bytes".to_vec())
    }

    fn size(&self, _: &Digest) -> Result<Option<u64>, runner_svc::dispatch::CodeUnreadable> {
        Ok(Some(11))
    }
}

#[tokio::test]
async fn an_exchange_is_acknowledged_after_it_is_durable() {
    let log = Log::default();
    let script = vec![Act::Exchange(0), Act::Exchange(1), completed("\"done\"")];
    let sandbox = FakeSandbox::playing_into(log.clone(), [script]).await;
    let broker = FakeBroker::granting("token-1").await;
    let (settled, kept) = send_journaled(&with_broker(&sandbox, &broker), code(Runtime::WasmIo), &log).await;
    assert_eq!(output(&settled), "\"done\"");
    assert_eq!(log.all(), ["start", "durable 0", "ack 0", "durable 1", "ack 1"]);
    assert_eq!(kept[1].response.text(), reply_of(1));
    assert_eq!((kept[1].ordinal, kept[1].request, kept[1].refused), (1, Digest::of(1_u32.to_be_bytes()), false));
    assert!(kept[1].record.as_ref().unwrap().text().contains("api.example.com"));
}

#[tokio::test]
async fn recorded_exchanges_go_along_and_new_ones_follow_them() {
    let log = Log::default();
    let sandbox = FakeSandbox::playing_into(log.clone(), [vec![Act::Exchange(1), completed("1")]]).await;
    let broker = FakeBroker::granting("token-1").await;
    let mut effect = code(Runtime::WasmIo);
    effect.recorded = vec![recorded(0)];
    effect.egress_calls_left = Some(2);
    let (_, kept) = send_journaled(&with_broker(&sandbox, &broker), effect, &log).await;
    let told = &sandbox.starts()[0].recorded;
    assert_eq!((told.len(), told[0].ordinal, told[0].reply_json.as_ref()), (1, 0, reply_of(0).as_bytes()));
    assert_eq!(kept.iter().map(|exchange| exchange.ordinal).collect::<Vec<_>>(), [1]);
    let limits = sandbox.starts()[0].limits.unwrap();
    assert_eq!(limits.max_calls, Some(3), "two that the run has left, and one that it has paid for");
}

#[tokio::test]
async fn an_exchange_that_cannot_be_journaled_stops_the_guest() {
    let sandbox = FakeSandbox::playing([vec![Act::Exchange(0), completed("1")]]).await;
    let broker = FakeBroker::granting("token-1").await;
    let refusing = |_: Exchange| async { Err(NotJournaled) }.boxed();
    let dispatcher = with_broker(&sandbox, &broker);
    let settled = dispatcher.dispatch(code(Runtime::WasmIo), &refusing, slot(), CancellationToken::new()).await;
    assert_eq!(settled.ending, Ending::NotJournaled);
    sandbox.log.has("cancel").await;
    assert!(!sandbox.log.all().contains(&"ack 0".to_owned()));
}

#[tokio::test]
async fn an_exchange_out_of_order_is_never_journaled() {
    let sandbox = FakeSandbox::playing([vec![Act::Exchange(0), completed("1")]]).await;
    let broker = FakeBroker::granting("token-1").await;
    let mut effect = code(Runtime::WasmIo);
    effect.recorded = vec![recorded(0)];
    let settled = send(&with_broker(&sandbox, &broker), effect).await;
    assert!(detail(&settled).contains("broke the protocol"), "{}", detail(&settled));
}

#[tokio::test]
async fn a_cancel_tells_the_sandbox_and_keeps_what_was_used() {
    let sandbox = FakeSandbox::playing([vec![Act::AwaitCancel]]).await;
    let cancel = CancellationToken::new();
    let canceler = async {
        sandbox.log.has("start").await;
        cancel.cancel();
    };
    let dispatcher = sandboxes(&[&sandbox.url]);
    let (settled, ()) = tokio::join!(send_until(&dispatcher, code(Runtime::Wasm), cancel.clone()), canceler);
    assert_eq!(settled.ending, Ending::Canceled);
    sandbox.log.has("cancel").await;
    assert_eq!(settled.usage.fuel, 99);
}

#[tokio::test]
async fn a_guests_end_keeps_its_kind_and_text() {
    for (kind, cause) in [
        (OutcomeKind::Trap, FailureCause::ExecutorError),
        (OutcomeKind::OutOfFuel, FailureCause::ExecutorError),
        (OutcomeKind::OutOfMemory, FailureCause::ExecutorError),
        (OutcomeKind::Timeout, FailureCause::Timeout),
        (OutcomeKind::Abi, FailureCause::ExecutorError),
        (OutcomeKind::BadOutput, FailureCause::ExecutorError),
        (OutcomeKind::OutputTooLarge, FailureCause::ExecutorError),
        (OutcomeKind::Exit, FailureCause::ExecutorError),
        (OutcomeKind::ModuleRefused, FailureCause::ExecutorError),
        (OutcomeKind::Canceled, FailureCause::ExecutorError),
        (OutcomeKind::Unspecified, FailureCause::ExecutorError),
    ] {
        let outcome = wire::Outcome { fuel_used: 17, ..ended(kind, "what the guest did") };
        let sandbox = FakeSandbox::playing([vec![Act::Outcome(outcome)]]).await;
        let settled = send(&sandboxes(&[&sandbox.url]), code(Runtime::Wasm)).await;
        let too_large = kind == OutcomeKind::OutputTooLarge;
        let text = if too_large { "RESULT_TOO_LARGE: what the guest did" } else { "what the guest did" };
        assert_eq!((failure(&settled).cause, detail(&settled)), (cause, text), "{kind:?}");
        assert_eq!(failure(&settled).code, too_large.then_some(FailureCode::TooLarge), "{kind:?}");
        assert_eq!(settled.usage.fuel, 17);
    }
}

#[tokio::test]
async fn a_sandbox_is_not_trusted_with_what_a_result_is() {
    for (text, told) in [("nope", "not JSON"), ("", "empty"), ("1e999", "out of range")] {
        let sandbox = FakeSandbox::playing([vec![completed(text)]]).await;
        let settled = send(&sandboxes(&[&sandbox.url]), code(Runtime::Wasm)).await;
        assert!(detail(&settled).contains(told) && detail(&settled).contains(&sandbox.url), "{}", detail(&settled));
    }
}

#[tokio::test]
async fn a_large_input_and_a_large_result_pass() {
    let large = format!("\"{}\"", "x".repeat(8 * 1024 * 1024 - 2));
    let sandbox = FakeSandbox::playing([vec![completed(&large)]]).await;
    let mut effect = code(Runtime::Wasm);
    effect.input = Payload::new(large.as_str());
    assert_eq!(output(&send(&sandboxes(&[&sandbox.url]), effect).await), large);
}

#[tokio::test]
async fn a_sandbox_that_hangs_is_left_at_the_deadline() {
    let sandbox = FakeSandbox::playing([vec![Act::Hang]]).await;
    let hanging = sandboxes(&[&sandbox.url]);
    timed_out(&hanging, || code(Runtime::Wasm), |_| !sandbox.starts().is_empty()).await;
    sandbox.log.has("stream ended").await;
}

fn with_broker(sandbox: &FakeSandbox, broker: &FakeBroker) -> Dispatcher {
    let broker_urls = vec![broker.url.clone()];
    dispatcher(DispatchConfig { sandbox: Some(at(&[&sandbox.url])), broker_urls, ..config(Path::new("/nonexistent")) })
}

fn recorded(ordinal: u32) -> Exchange {
    Exchange {
        ordinal,
        request: Digest::of(ordinal.to_be_bytes()),
        response: Payload::new(reply_of(ordinal)),
        record: None,
        refused: false,
        blobs: Vec::new(),
    }
}
