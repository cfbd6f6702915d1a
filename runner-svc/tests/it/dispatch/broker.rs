//! Tokens: who gets one, what is asked for, when it ends.

use std::path::Path;

use proto::broker::v1::Spender;
use runner_core::{
    outcome::FailureCause,
    pinned::{Runtime, RuntimeLimits},
};
use runner_svc::dispatch::{DispatchConfig, Dispatcher, Ending};
use tokio_util::sync::CancellationToken;

use super::{
    fake_broker::{FakeBroker, POLICY_HEX},
    fake_sandbox::{Act, FakeSandbox, completed},
    rig::*,
};

#[tokio::test]
async fn a_token_is_minted_for_one_effect_and_ended_with_it() {
    let sandbox = FakeSandbox::playing([vec![completed("1")]]).await;
    let broker = FakeBroker::granting("token-1").await;
    let limits = RuntimeLimits { max_calls: Some(3), max_response_bytes: Some(4096), ..RuntimeLimits::default() };
    let effect = code_with(Runtime::WasmIo, Some(limits));
    let (definition, key) = (effect.tool.definition.to_hex(), effect.idempotency_key.to_hex());
    assert_eq!(output(&send(&with(&sandbox, &broker.url), effect).await), "1");
    let egress = sandbox.starts()[0].egress.clone().unwrap();
    assert_eq!((egress.token.as_str(), egress.url.as_str()), ("token-1", "http://egress.example:7431"));
    assert_eq!(egress.broker_url, "", "there is but one");

    let asked = &broker.minted()[0];
    assert_eq!((asked.run_id.as_str(), asked.namespace.as_str(), asked.node.as_str()), ("run-1", "ops", "work"));
    assert_eq!((asked.tool_name.as_str(), asked.principal.as_str(), asked.attempt), ("work", "user:runner", 1));
    assert_eq!((&asked.definition_hash, &asked.idempotency_key), (&definition, &key));
    let declared: serde_json::Value = serde_json::from_str(asked.capabilities_json.as_ref().unwrap()).unwrap();
    assert_eq!(declared[0]["http"]["hosts"][0], "https://api.example.com");
    let ceilings = asked.ceilings.unwrap();
    assert_eq!(
        (ceilings.max_calls, ceilings.max_response_bytes, ceilings.max_request_bytes),
        (Some(3), Some(4096), None)
    );
    assert!(asked.deadline.is_some());
    assert_eq!((asked.spender(), asked.watcher.as_str()), (Spender::Sandbox, ""));
    assert_eq!(asked.tenant, sandbox.starts()[0].tenant, "the sandbox says whose effect it is in the same word");
    broker.log.has("revoke run-1 work 1").await;
}

#[tokio::test]
async fn a_canceled_effects_token_is_ended_too() {
    let sandbox = FakeSandbox::playing([vec![Act::AwaitCancel]]).await;
    let broker = FakeBroker::granting("token-1").await;
    let cancel = CancellationToken::new();
    let canceler = async {
        sandbox.log.has("start").await;
        cancel.cancel();
    };
    let dispatcher = with(&sandbox, &broker.url);
    let (settled, ()) = tokio::join!(send_until(&dispatcher, code(Runtime::WasmIo), cancel.clone()), canceler);
    assert_eq!(settled.ending, Ending::Canceled);
    broker.log.has("revoke run-1 work 1").await;
}

#[tokio::test]
async fn code_without_a_declaration_asks_with_none() {
    let sandbox = FakeSandbox::playing([vec![completed("1")]]).await;
    let broker = FakeBroker::granting("token-1").await;
    send(&with(&sandbox, &broker.url), code(Runtime::Native)).await;
    assert_eq!(broker.minted()[0].capabilities_json, None);
    assert_eq!(sandbox.starts()[0].egress.as_ref().unwrap().token, "token-1");
}

#[tokio::test]
async fn without_a_grant_code_runs_and_learns_no_address() {
    for runtime in [Runtime::WasmIo, Runtime::Native] {
        let sandbox = FakeSandbox::playing([vec![completed("1")]]).await;
        let broker = FakeBroker::granting_nothing().await;
        assert_eq!(output(&send(&with(&sandbox, &broker.url), code(runtime)).await), "1");
        assert_eq!(sandbox.starts()[0].egress, None);
    }
}

#[tokio::test]
async fn a_module_with_brokered_calls_needs_a_broker() {
    let sandbox = FakeSandbox::playing([vec![completed("1")]]).await;
    let settled = send(&sandboxes(&[&sandbox.url]), code(Runtime::WasmIo)).await;
    assert_eq!(failure(&settled).cause, FailureCause::ExecutorError);
    let detail = detail(&settled);
    assert!(detail.contains("no credential broker") && detail.contains("--broker-url"), "{detail}");
    assert_eq!(sandbox.starts().len(), 0);
}

#[tokio::test]
async fn a_native_blob_without_a_broker_runs_without_egress() {
    let sandbox = FakeSandbox::playing([vec![completed("1")]]).await;
    assert_eq!(output(&send(&sandboxes(&[&sandbox.url]), code(Runtime::Native)).await), "1");
    assert_eq!(sandbox.starts()[0].egress, None);
}

#[tokio::test]
async fn a_broker_that_is_down_is_waited_for_a_while_and_then_named() {
    let sandbox = FakeSandbox::playing([vec![completed("1")]]).await;
    let broker = FakeBroker::granting_after("token-1", 2).await;
    assert_eq!(output(&send(&with(&sandbox, &broker.url), code(Runtime::WasmIo)).await), "1");
    assert_eq!(broker.minted().len(), 3);

    let silent = nobody().await;
    let settled = send(&with(&sandbox, &silent), code(Runtime::WasmIo)).await;
    assert_eq!(failure(&settled).cause, FailureCause::ExecutorError);
    assert!(detail(&settled).contains(&silent) && detail(&settled).contains("300ms"), "{}", detail(&settled));
    assert_eq!(sandbox.starts().len(), 1, "what may not call out is not started");
}

#[tokio::test]
async fn a_runs_tokens_end_together_and_the_policy_is_known_by_digest() {
    let sandbox = FakeSandbox::playing([vec![completed("1")]]).await;
    let broker = FakeBroker::granting("token-1").await;
    let dispatcher = with(&sandbox, &broker.url);
    assert_eq!(dispatcher.revoke_run("run-1").await, Ok(3));
    broker.log.has("revoke run run-1").await;
    assert_eq!(dispatcher.policy_digest().await.unwrap().unwrap().to_hex(), POLICY_HEX);
    assert_eq!(dispatcher.ready().await, Ok(()));

    let alone = sandboxes(&[&sandbox.url]);
    assert_eq!((alone.revoke_run("run-1").await, alone.policy_digest().await), (Ok(0), Ok(None)));
    let silent = nobody().await;
    let without = with(&sandbox, &silent);
    assert!(without.revoke_run("run-1").await.unwrap_err().to_string().contains(&silent));
    assert!(without.ready().await.unwrap_err()[0].to_string().contains("credential broker"));
}

#[tokio::test]
async fn of_several_brokers_each_run_keeps_one_and_the_sandbox_is_told_which() {
    const RUNS: usize = 32;
    let sandbox = FakeSandbox::playing((0..2 * RUNS).map(|_| vec![completed("1")])).await;
    let (left, right) = (FakeBroker::granting("left").await, FakeBroker::granting("right").await);
    let dispatcher = with_all(&sandbox, &[&left.url, &right.url]);
    for number in 0..2 * RUNS {
        let mut effect = code(Runtime::WasmIo);
        effect.run_id = format!("run-{}", number % RUNS);
        assert_eq!(output(&send(&dispatcher, effect).await), "1");
    }
    let mut minter = std::collections::BTreeMap::new();
    for start in sandbox.starts() {
        let egress = start.egress.unwrap();
        let (url, run) = (egress.broker_url, start.effect.unwrap().run_id);
        assert_eq!(url, if egress.token == "left" { left.url.as_str() } else { right.url.as_str() });
        assert_eq!(minter.entry(run).or_insert_with(|| url.clone()), &url);
    }
    assert!(!left.minted().is_empty() && !right.minted().is_empty());
    assert_eq!(dispatcher.revoke_run("run-1").await, Ok(6), "at every replica");
}

#[tokio::test]
async fn the_next_broker_mints_when_one_does_not_answer() {
    let sandbox = FakeSandbox::playing((0..8).map(|_| vec![completed("1")])).await;
    let broker = FakeBroker::granting("token-1").await;
    let silent = nobody().await;
    let dispatcher = with_all(&sandbox, &[&silent, &broker.url]);
    for number in 0..8 {
        let mut effect = code(Runtime::WasmIo);
        effect.run_id = format!("run-{number}");
        assert_eq!(output(&send(&dispatcher, effect).await), "1");
    }
    assert_eq!(broker.minted().len(), 8);
    assert_eq!(dispatcher.policy_digest().await.unwrap().unwrap().to_hex(), POLICY_HEX);
    let unanswered = dispatcher.revoke_run("run-1").await.unwrap_err().to_string();
    assert!(unanswered.contains(&silent), "its tokens may live: {unanswered}");
}

fn with(sandbox: &FakeSandbox, broker_url: &str) -> Dispatcher {
    with_all(sandbox, &[broker_url])
}

fn with_all(sandbox: &FakeSandbox, broker_urls: &[&str]) -> Dispatcher {
    let broker_urls = broker_urls.iter().map(|url| (*url).to_owned()).collect();
    dispatcher(DispatchConfig { sandbox: Some(at(&[&sandbox.url])), broker_urls, ..config(Path::new("/nonexistent")) })
}
