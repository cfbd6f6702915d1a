//! The services know each other, and their callers, by certificate.

use content_digest::Digest;
use e2e::{
    canary,
    certificates::{Authority, Certificate},
    client::Client,
    document::{Definition, Plan},
    flags::Flags,
    guests,
    refusal::Refusal,
    service::Service,
    stack::Who,
    upstream::{Answer, Upstream},
};
use proto::{
    broker::v1::{
        CallingEffect, FetchArtifactRequest, FetchRequest, ListCallsRequest, MintTokenRequest, Spender,
        broker_service_client::BrokerServiceClient,
    },
    identity::Role,
    runner::v1::RunStatus,
    sandbox::v1::{StatModulesRequest, sandbox_service_client::SandboxServiceClient},
};
use serde_json::json;
use tonic::Code;

use crate::artifacts;

struct Secured {
    authority: Authority,
    broker: Service,
    sandbox: Service,
    runner: Service,
    // Last: it is searched for secrets when the services have ended.
    folder: canary::Folder,
}

async fn secured(settings: &str, pinned: &[&[u8]]) -> Secured {
    let folder = canary::Folder::new().unwrap();
    let authority = Authority::new(folder.path(), "stack").unwrap();
    let file = folder.path().join("broker.toml");
    std::fs::write(&file, settings).unwrap();
    let broker = Flags::broker().config(&file).certified(&authority.role(Role::Broker).unwrap());
    let broker = Service::start(broker, folder.path()).await.unwrap();
    let sandbox = Flags::sandbox().broker_url(&broker.url()).certified(&authority.role(Role::Sandbox).unwrap());
    let sandbox = Service::start(sandbox, folder.path()).await.unwrap();
    let tokens = folder.path().join("tokens.toml");
    std::fs::write(&tokens, e2e::stack::tokens_file()).unwrap();
    let runner = Flags::runner(&folder.path().join("data"))
        .broker_url(&broker.url())
        .sandbox_url(&sandbox.url())
        .allow_executor(&pinned.iter().map(|code| Digest::of(code).to_hex()).collect::<Vec<_>>().join(","))
        .tokens_file(&tokens)
        .certified(&authority.role(Role::Runner).unwrap());
    let runner = Service::start(runner, folder.path()).await.unwrap();
    Secured { authority, broker, sandbox, runner, folder }
}

#[tokio::test]
async fn a_run_goes_through_all_three_services_over_mutual_tls() {
    let upstream = Upstream::answering(Answer::json(200, &json!({"ok": true}))).await.unwrap();
    let origin = upstream.origin();
    let module = guests::fetch(&json!({"url": origin, "method": "GET"}));
    let settings = format!(
        "[policy]\nallow_hosts = [{origin:?}]\nallow_private = [\"127.0.0.0/8\"]\n\
         [grants.work]\nmethods = [\"GET\"]\nhosts = [{origin:?}]\n"
    );
    let stack = secured(&settings, &[&module]).await;
    let client = Client::new(stack.runner.channel().unwrap(), Some(Who::Runner.token()));
    let uri = client.put_blob(&module).await.unwrap();
    let capabilities = json!([{"http": {"hosts": [origin]}}]);
    let hash = client.put_definition(&Definition::io("work", &uri, capabilities)).await.unwrap();
    let plan = client.put_plan(&Plan::work(&hash)).await.unwrap();
    let run = client.run("r1", &plan, &json!({})).await.unwrap();
    assert_eq!(run.status(), RunStatus::Completed, "{}", run.reason);
    assert_eq!(upstream.received().len(), 1);
}

#[tokio::test]
async fn artifacts_go_both_ways_over_mutual_tls_and_by_the_runners_own_hand_alone() {
    // More than one message of the wire in each direction.
    let body = artifacts::binary(3 * 1024 * 1024 + 7);
    let upstream = artifacts::upstream(body.clone()).await;
    let origin = upstream.origin();
    let (down, up) = artifacts::modules(&origin);
    let stack = secured(&artifacts::settings(&origin), &[&down, &up]).await;
    let client = Client::new(stack.runner.channel().unwrap(), Some(Who::Runner.token()));
    let plan = artifacts::put_plan(&client, &origin, true).await;
    let run = client.run("r1", &plan, &json!({})).await.unwrap();
    assert_eq!(run.status(), RunStatus::Completed, "{}", run.reason);
    let put = upstream.received().into_iter().find(|request| request.head.starts_with("PUT")).unwrap();
    assert!(put.body == body, "the upstream received {} other bytes", put.body.len());
    assert!(client.verify("r1").await.unwrap().clean);

    let as_sandbox = stack.authority.role(Role::Sandbox).unwrap().material().unwrap();
    let channel = proto::dial::dial(&stack.broker.url(), Some(&as_sandbox)).unwrap();
    let messages = tokio_stream::iter([FetchArtifactRequest::default()]);
    let asked = BrokerServiceClient::new(channel).fetch_artifact(messages).await;
    Refusal::of(&asked.unwrap_err()).is(Code::PermissionDenied, "ROLE_NOT_ALLOWED");
}

#[tokio::test]
async fn each_role_does_its_own_work_and_a_stranger_none() {
    let stack = secured("", &[]).await;
    let as_sandbox = stack.authority.role(Role::Sandbox).unwrap().material().unwrap();
    let channel = proto::dial::dial(&stack.broker.url(), Some(&as_sandbox)).unwrap();
    let minting = BrokerServiceClient::new(channel).mint_token(MintTokenRequest::default()).await;
    Refusal::of(&minting.unwrap_err()).is(Code::PermissionDenied, "ROLE_NOT_ALLOWED");

    let as_broker = stack.authority.role(Role::Broker).unwrap().material().unwrap();
    let channel = proto::dial::dial(&stack.sandbox.url(), Some(&as_broker)).unwrap();
    let mut sandbox = SandboxServiceClient::new(channel);
    let looking = sandbox.stat_modules(StatModulesRequest::default()).await;
    Refusal::of(&looking.unwrap_err()).is(Code::PermissionDenied, "ROLE_NOT_ALLOWED");
    let uploading = sandbox.put_module(tokio_stream::empty()).await;
    Refusal::of(&uploading.unwrap_err()).is(Code::PermissionDenied, "ROLE_NOT_ALLOWED");

    // The same role by another authority is nobody.
    let other = Authority::new(stack.folder.path(), "other").unwrap();
    let mut stranger = other.named("stranger", "spiffe://areev.local/runner").unwrap();
    stranger.authority = stack.authority.role(Role::Runner).unwrap().authority;
    let channel = proto::dial::dial(&stack.broker.url(), Some(&stranger.material().unwrap())).unwrap();
    let minting = BrokerServiceClient::new(channel).mint_token(MintTokenRequest::default()).await;
    assert_eq!(proto::fault::reason_of(&minting.unwrap_err()), None, "the handshake fails: no service was reached");

    // And plain text reaches nothing.
    let plain = stack.broker.url().replace("https", "http");
    let channel = proto::dial::dial(&plain, None).unwrap();
    let minting = BrokerServiceClient::new(channel).mint_token(MintTokenRequest::default()).await;
    assert!(minting.is_err());
}

#[tokio::test]
async fn t01_a_token_serves_the_workload_certificate_that_showed_it_first_and_no_other() {
    let settings = "[policy]\nallow_hosts = [\"http://127.0.0.1:9\"]\nallow_private = [\"127.0.0.0/8\"]\n\
        [grants.work]\nhosts = [\"http://127.0.0.1:9\"]\n";
    let stack = secured(settings, &[]).await;
    let as_who = |certificate: Certificate| {
        let channel = proto::dial::dial(&stack.broker.url(), Some(&certificate.material().unwrap())).unwrap();
        BrokerServiceClient::new(channel)
    };
    let mint = MintTokenRequest {
        run_id: "r1".into(),
        node: "work".into(),
        attempt: 1,
        tool_name: "work".into(),
        definition_hash: "ab".repeat(32),
        tenant: "ops".into(),
        spender: Spender::Sandbox.into(),
        deadline: Some((std::time::SystemTime::now() + std::time::Duration::from_secs(60)).into()),
        ..MintTokenRequest::default()
    };
    let effect = CallingEffect {
        run_id: "r1".into(),
        node: "work".into(),
        attempt: 1,
        tool_name: "work".into(),
        definition_hash: "ab".repeat(32),
        tenant: "ops".into(),
        ..CallingEffect::default()
    };
    let mut runner = as_who(stack.authority.role(Role::Runner).unwrap());
    let token = runner.mint_token(mint).await.unwrap().into_inner().token;
    let fetch =
        FetchRequest { token, url: "http://127.0.0.1:9/".into(), effect: Some(effect), ..FetchRequest::default() };

    // The runner is no sandbox, even with its own token.
    let refused = runner.fetch(fetch.clone()).await.unwrap_err();
    Refusal::of(&refused).is(Code::PermissionDenied, "EGRESS_REFUSED");
    assert!(refused.message().contains("minted for another spender"), "{}", refused.message());
    // One sandbox calls; nobody listens there, but it got so far.
    let role = proto::identity::role_uri("areev.local", Role::Sandbox);
    let mut one = as_who(stack.authority.with_names("one", &[&role, "spiffe://areev.local/node/1"]).unwrap());
    let failed = one.fetch(fetch.clone()).await.unwrap_err();
    Refusal::of(&failed).is(Code::Unavailable, "UPSTREAM_FAILED");
    // Another sandbox, to which the token came some other way, does not.
    let mut other = as_who(stack.authority.with_names("other", &[&role, "spiffe://areev.local/node/2"]).unwrap());
    let refused = other.fetch(fetch.clone()).await.unwrap_err();
    Refusal::of(&refused).is(Code::PermissionDenied, "EGRESS_REFUSED");
    assert!(refused.message().contains("minted for another certificate"), "{}", refused.message());
    let calls = runner.list_calls(ListCallsRequest::default()).await.unwrap().into_inner().calls;
    let reasons: Vec<_> = calls.iter().map(|call| call.reason.as_str()).collect();
    assert_eq!(reasons, ["connect_failed", "token_binding_mismatch"], "the same refusal is recorded once");
}
