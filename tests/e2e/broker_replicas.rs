//! Several brokers that share their keys: an effect calls where its token was minted, and a run outlives one of them.

use std::{
    collections::BTreeMap,
    fs,
    path::Path,
    time::{Duration, SystemTime},
};

use e2e::{
    document::Definition,
    flags::Flags,
    guests,
    service::Service,
    stack::Stack,
    upstream::{Answer, Upstream},
};
use proto::{
    broker::v1::{FetchRequest, ListCallsRequest, MintTokenRequest, broker_service_client::BrokerServiceClient},
    fault::{Reason, reason_of},
    runner::v1::RunStatus,
};
use serde_json::json;
use tonic::Code;

/// More runs than one replica gets by chance.
const RUNS: usize = 24;

fn settings(origin: &str, replica: &str, keys: &Path) -> String {
    format!(
        "replica = {replica:?}\ntoken_keys = {keys:?}\n\
         [policy]\nallow_hosts = [{origin:?}]\nallow_private = [\"127.0.0.0/8\"]\n\
         [grants.work]\nmethods = [\"GET\"]\nhosts = [{origin:?}]\n"
    )
}

/// How many calls each run made by this broker.
async fn calls(broker: &Service) -> BTreeMap<String, usize> {
    let mut client = BrokerServiceClient::new(broker.channel().unwrap());
    let calls = client.list_calls(ListCallsRequest::default()).await.unwrap().into_inner().calls;
    calls.into_iter().fold(BTreeMap::new(), |mut counts, call| {
        *counts.entry(call.run_id).or_default() += 1;
        counts
    })
}

#[tokio::test]
async fn each_run_calls_by_one_of_the_brokers_and_by_the_other_when_that_is_gone() {
    let upstream = Upstream::answering(Answer::json(200, &json!({"ok": true}))).await.unwrap();
    let origin = upstream.origin();
    let folder = tempfile::tempdir().unwrap();
    let keys = folder.path().join("keys");
    fs::create_dir(&keys).unwrap();
    fs::write(keys.join("2026-11"), "a key of thirty-two bytes or more").unwrap();
    let file = folder.path().join("second.toml");
    fs::write(&file, settings(&origin, "second", &keys)).unwrap();
    let mut second = Service::start(Flags::broker().config(&file), folder.path()).await.unwrap();

    let module = guests::fetch(&json!({"url": format!("{origin}/a")}));
    let builder = Stack::builder().unwrap().pin(&module).sandbox();
    let builder = builder.broker(&settings(&origin, "first", &keys), &[]).unwrap();
    let builder = builder.runner(|flags| flags.broker_url(&second.url()));
    let stack = builder.sandbox_flags(|flags| flags.broker_url(&second.url())).start().await.unwrap();
    let (client, first) = (stack.client(), stack.broker.as_ref().unwrap());
    let uri = client.put_blob(&module).await.unwrap();
    let http = json!([{"http": {"hosts": [origin], "methods": ["GET"]}}]);
    let plan = client.put_work(&Definition::io("work", &uri, http)).await.unwrap();
    for number in 0..RUNS {
        let run = client.run(&format!("r{number}"), &plan, &json!({})).await.unwrap();
        assert_eq!(run.status(), RunStatus::Completed, "{}", run.reason);
    }
    let (by_first, by_second) = (calls(first).await, calls(&second).await);
    assert!(!by_first.is_empty() && !by_second.is_empty(), "both carry some: {by_first:?}, {by_second:?}");
    assert!(by_first.keys().all(|run| !by_second.contains_key(run)), "a run has its tokens from one of them");
    assert_eq!(by_first.values().chain(by_second.values()).sum::<usize>(), RUNS);

    second.process().kill().unwrap();
    for number in 0..RUNS {
        let run = client.run(&format!("s{number}"), &plan, &json!({})).await.unwrap();
        assert_eq!(run.status(), RunStatus::Completed, "{}", run.reason);
        let entries = client.entries(&format!("s{number}")).await.unwrap();
        assert_eq!((entries[0].attempt, entries[0].dispatches), (1, 1), "no attempt was spent");
    }
    assert_eq!(calls(first).await.len(), by_first.len() + RUNS);
}

#[tokio::test]
async fn a_token_of_one_replica_is_known_to_the_other_and_refused_there_by_name() {
    let upstream = Upstream::answering(Answer::json(200, &json!({}))).await.unwrap();
    let origin = upstream.origin();
    let folder = tempfile::tempdir().unwrap();
    let keys = folder.path().join("keys");
    fs::create_dir(&keys).unwrap();
    fs::write(keys.join("2026-11"), "a key of thirty-two bytes or more").unwrap();
    let mut replicas = Vec::new();
    for name in ["first", "second"] {
        let logs = folder.path().join(name);
        fs::create_dir(&logs).unwrap();
        let file = logs.join("broker.toml");
        fs::write(&file, settings(&origin, name, &keys)).unwrap();
        replicas.push(Service::start(Flags::broker().config(&file), &logs).await.unwrap());
    }
    let mint = MintTokenRequest {
        run_id: "r1".to_owned(),
        namespace: "ops".to_owned(),
        node: "work".to_owned(),
        attempt: 1,
        tool_name: "work".to_owned(),
        definition_hash: "ab".repeat(32),
        principal: "user:alice".to_owned(),
        idempotency_key: "cd".repeat(32),
        deadline: Some((SystemTime::now() + Duration::from_secs(600)).into()),
        ..MintTokenRequest::default()
    };
    let [mut here, mut there] = [0, 1].map(|index: usize| BrokerServiceClient::new(replicas[index].channel().unwrap()));
    let token = here.mint_token(mint).await.unwrap().into_inner().token;
    let fetch = FetchRequest { token, url: origin, method: "GET".to_owned(), ..FetchRequest::default() };
    let refused = there.fetch(fetch.clone()).await.unwrap_err();
    assert_eq!((refused.code(), reason_of(&refused)), (Code::Unauthenticated, Some(Reason::TokenRefused)));
    assert!(refused.message().contains("replica \"first\""), "{}", refused.message());
    assert!(upstream.received().is_empty());
    assert_eq!(here.fetch(fetch).await.unwrap().into_inner().status, 200);
}
