//! Ids and lengths that other engines choked on are refused where they are given, and leave nothing behind.

use e2e::{document::Definition, refusal::Refusal, stack::Stack};
use proto::runner::v1::{RunStatus, StartRunRequest};
use serde_json::json;
use tonic::Code;

use super::policy;

#[tokio::test]
async fn ids_that_are_empty_blank_10_kib_or_have_nul_or_turn_the_line_around_are_refused_by_name() {
    let stack = Stack::builder().unwrap().runner(|flags| flags.tool_cmd("cat")).start().await.unwrap();
    let client = stack.client();
    let plan = client.put_work(&Definition::tool("work")).await.unwrap();
    let long = "x".repeat(10 * 1024);
    for bad in ["", " ", "\u{a0}", &long, "a\0b", "\u{202e}evil", "שלום", "a\u{200b}b"] {
        let refusal = Refusal::expected(client.start(bad, &plan, &json!({})).await);
        refusal.is(Code::InvalidArgument, "BAD_RUN_ID").says("RUN-E020", &["run id"]);
        assert!(refusal.text.len() < 1024 && !refusal.text.contains('\0'), "{}", refusal.text);
        assert!(!refusal.text.contains('\u{202e}'), "the text of a refusal is not turned around either");
    }
    let run = client.run("order-4711 of Zoë, 注文", &plan, &json!({})).await.unwrap();
    assert_eq!(run.status(), RunStatus::Completed);
}

#[tokio::test]
async fn a_timeout_of_the_largest_number_is_refused_by_name_or_taken_and_nothing_overflows() {
    let stack = Stack::builder().unwrap().runner(|flags| flags.tool_cmd("cat")).start().await.unwrap();
    let client = stack.client();
    let plan = client.put_work(&Definition::tool("work")).await.unwrap();
    let year = 366 * 24 * 3600;
    for seconds in [i64::MAX, year + 1, 0, -1, i64::MIN] {
        let options = policy(|policy| policy.timeout = Some(prost_types::Duration { seconds, nanos: 0 }));
        let refusal = Refusal::expected(client.run_with("r1", &plan, &json!({}), options).await);
        refusal.is(Code::InvalidArgument, "INVALID_ARGUMENT");
        assert!(refusal.fields.iter().any(|field| field.contains("timeout")), "{refusal:?}");
    }
    let options = policy(|policy| policy.timeout = Some(prost_types::Duration { seconds: year, nanos: 0 }));
    let run = client.run_with("r1", &plan, &json!({}), options).await.unwrap();
    assert_eq!(run.status(), RunStatus::Completed, "{}", run.reason);
    assert!(client.verify("r1").await.unwrap().clean);
    let ttl = prost_types::Duration { seconds: i64::MAX, nanos: 999_999_999 };
    let options = proto::runner::v1::RunOptions { ask_ttl: Some(ttl), ..Default::default() };
    let start = e2e::client::request("r2", &plan, &json!({}));
    let refusal = Refusal::expected(client.start_with(StartRunRequest { options: Some(options), ..start }).await);
    refusal.is(Code::InvalidArgument, "INVALID_ARGUMENT");
    Refusal::expected(client.get("r2").await).is(Code::NotFound, "RUN_NOT_FOUND");
}
