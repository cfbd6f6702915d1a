//! Host tools by service.

use std::path::Path;

use proto::tool::v1::{ExecuteToolResponse, ToolFailure, execute_tool_response::Outcome};
use runner_core::outcome::FailureCause;
use runner_svc::dispatch::{DispatchConfig, Dispatcher, Ending, HostToolAt};
use tokio_util::sync::CancellationToken;
use tonic::Status;

use super::{fake_broker::FakeBroker, fake_tool::FakeTool, rig::*};

#[tokio::test]
async fn the_service_is_told_all_and_its_exact_result_is_kept() {
    let tool = FakeTool::answering(result(" {\"n\": 18446744073709551615}\n")).await;
    let broker = FakeBroker::granting("token-1").await;
    let dispatcher = at_url(&tool.url, Some(&broker));
    let effect = host_tool();
    let (definition, key) = (effect.tool.definition.to_hex(), effect.idempotency_key.to_hex());
    assert_eq!(output(&send(&dispatcher, effect).await), "{\"n\": 18446744073709551615}");
    let asked = &tool.asked()[0];
    assert_eq!((asked.tool_name.as_str(), asked.input_json.as_str()), ("work", "{\"q\":7}"));
    assert_eq!((&asked.definition_hash, &asked.idempotency_key), (&definition, &key));
    assert_eq!((asked.egress_url.as_str(), asked.egress_token.as_str()), ("http://egress.example:7431", "token-1"));
    assert!(asked.deadline.is_some());
}

#[tokio::test]
async fn without_a_grant_the_service_is_told_no_address() {
    let tool = FakeTool::answering(result("1")).await;
    let broker = FakeBroker::granting_nothing().await;
    send(&at_url(&tool.url, Some(&broker)), host_tool()).await;
    let asked = &tool.asked()[0];
    assert_eq!((asked.egress_url.as_str(), asked.egress_token.as_str()), ("", ""));
}

#[tokio::test]
async fn a_failure_says_whether_a_retry_may_help() {
    for retryable in [true, false] {
        let failure_told = ToolFailure { detail: "no such customer".to_owned(), retryable };
        let tool = FakeTool::answering(Ok(ExecuteToolResponse { outcome: Some(Outcome::Failure(failure_told)) })).await;
        let settled = send(&at_url(&tool.url, None), host_tool()).await;
        assert_eq!((failure(&settled).cause, failure(&settled).permanent), (FailureCause::ExecutorError, !retryable));
        assert_eq!(detail(&settled), "no such customer");
    }
}

#[tokio::test]
async fn a_status_or_no_outcome_or_no_json_is_an_executor_error_that_names_the_service() {
    for (answer, told) in [
        (Err(Status::internal("the tool fell over")), "the tool fell over"),
        (Err(Status::unavailable("down for lunch")), "down for lunch"),
        (Ok(ExecuteToolResponse { outcome: None }), "without an outcome"),
        (result("nope"), "not JSON"),
    ] {
        let tool = FakeTool::answering(answer).await;
        let settled = send(&at_url(&tool.url, None), host_tool()).await;
        assert_eq!(failure(&settled).cause, FailureCause::ExecutorError);
        assert!(detail(&settled).contains(told) && detail(&settled).contains(&tool.url), "{}", detail(&settled));
        assert_eq!(tool.asked().len(), 1, "what may have happened is not sent again");
    }
}

#[tokio::test]
async fn a_result_over_the_cap_is_named_with_both_sizes() {
    let tool = FakeTool::answering(result(&format!("\"{}\"", "x".repeat(20 * 1024 * 1024 - 2)))).await;
    let settled = send(&at_url(&tool.url, None), host_tool()).await;
    assert!(detail(&settled).contains("20971520") && detail(&settled).contains("8388608"), "{}", detail(&settled));
}

#[tokio::test]
async fn a_service_that_cannot_be_reached_fails_the_effect_and_is_named() {
    let url = nobody().await;
    let settled = send(&at_url(&url, None), host_tool()).await;
    assert_eq!(failure(&settled).cause, FailureCause::ExecutorError);
    let detail = detail(&settled);
    assert!(detail.contains(&url) && detail.contains("300ms") && detail.contains("refused"), "{detail}");
}

#[tokio::test]
async fn a_timeout_or_a_cancel_ends_the_call() {
    let tool = FakeTool::hanging().await;
    let dispatcher = at_url(&tool.url, None);
    timed_out(&dispatcher, host_tool, |_| !tool.asked().is_empty()).await;
    tool.log.has("gone").await;

    let tool = FakeTool::hanging().await;
    let dispatcher = at_url(&tool.url, None);
    let cancel = CancellationToken::new();
    let canceler = async {
        tool.log.has("asked").await;
        cancel.cancel();
    };
    let (settled, ()) = tokio::join!(send_until(&dispatcher, host_tool(), cancel.clone()), canceler);
    assert_eq!(settled.ending, Ending::Canceled);
    tool.log.has("gone").await;
}

fn at_url(url: &str, broker: Option<&FakeBroker>) -> Dispatcher {
    let host_tool = Some(HostToolAt::Url(url.to_owned()));
    let broker_urls = broker.iter().map(|broker| broker.url.clone()).collect();
    dispatcher(DispatchConfig { host_tool, broker_urls, ..config(Path::new("/nonexistent")) })
}

fn result(text: &str) -> Result<ExecuteToolResponse, Status> {
    Ok(ExecuteToolResponse { outcome: Some(Outcome::OutputJson(text.to_owned())) })
}
