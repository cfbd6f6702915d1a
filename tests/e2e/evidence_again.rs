//! Verifying by executing again: modules give the same, without a network, or the first event that differs is named.

use e2e::{
    client::NAMESPACE,
    document::Definition,
    guests,
    refusal::Refusal,
    shell_tool::ShellTool,
    stack::Stack,
    upstream::{Answer, Upstream},
};
use proto::runner::v1::{Reexecute, RunStatus, VerifyRunRequest, VerifyRunResponse};
use serde_json::json;
use tonic::{Code, Status};

async fn verify(stack: &Stack, reexecute: Reexecute) -> Result<VerifyRunResponse, Status> {
    let request =
        VerifyRunRequest { namespace: NAMESPACE.to_owned(), run_id: "r1".to_owned(), reexecute: reexecute.into() };
    Ok(stack.client().runner().verify_run(request).await?.into_inner())
}

#[tokio::test]
async fn modules_are_executed_again_from_their_recorded_exchanges_without_a_network() {
    let upstream = Upstream::start(|_| Some(Answer::json(200, &json!({"n": 7})))).await.unwrap();
    let origin = upstream.origin();
    let settings = format!(
        "[policy]\nallow_hosts = [{origin:?}]\nallow_private = [\"127.0.0.0/8\"]\n\
         [grants.call]\nmethods = [\"GET\"]\nhosts = [{origin:?}]\n"
    );
    let (echo, fetch) = (guests::echo(), guests::fetch(&json!({"url": format!("{origin}/a")})));
    let builder = Stack::builder().unwrap().pin(&echo).pin(&fetch).sandbox();
    let mut stack = builder.broker(&settings, &[]).unwrap().start().await.unwrap();
    let client = stack.client();
    let (pure, io) = (client.put_blob(&echo).await.unwrap(), client.put_blob(&fetch).await.unwrap());
    let http = json!([{"http": {"hosts": [origin], "methods": ["GET"]}}]);
    let first = client.put_definition(&Definition::pure("first", &pure)).await.unwrap();
    let call = client.put_definition(&Definition::io("call", &io, http)).await.unwrap();
    let plan = e2e::document::Plan::chain([("first", &*first), ("call", &call)]);
    let plan = client.put_plan(&plan).await.unwrap();
    let run = client.run("r1", &plan, &json!({"x": 1})).await.unwrap();
    assert_eq!(run.status(), RunStatus::Completed, "{}", run.reason);
    stack.broker.as_mut().unwrap().process().kill().unwrap();
    let calls = upstream.received().len();
    for (reexecute, executed) in [(Reexecute::Unspecified, 0), (Reexecute::Pure, 1), (Reexecute::AllWasm, 2)] {
        let verdict = verify(&stack, reexecute).await.unwrap();
        assert!(verdict.clean, "{reexecute:?}: {}", verdict.divergence);
        assert_eq!(verdict.reexecuted, executed, "{reexecute:?}");
    }
    assert_eq!(upstream.received().len(), calls, "nothing went out");
}

#[tokio::test]
async fn a_module_that_gives_something_else_is_named_with_its_event_and_field() {
    let module = guests::echo();
    let builder = Stack::builder().unwrap().pin(&module);
    // A sandbox command whose answer counts its calls.
    let count = builder.directory().join("count");
    let body = format!("cat > /dev/null; echo x >> '{0}'; echo \"{{\\\"n\\\":$(wc -l < '{0}')}}\"", count.display());
    let stub = ShellTool::write(builder.directory(), "stub.sh", &body).unwrap();
    let stack = builder.runner(|flags| flags.sandbox_cmd(stub.path())).start().await.unwrap();
    let client = stack.client();
    let uri = client.put_blob(&module).await.unwrap();
    let plan = client.put_work(&Definition::pure("work", &uri)).await.unwrap();
    let run = client.run("r1", &plan, &json!({})).await.unwrap();
    assert_eq!(run.status(), RunStatus::Completed, "{}", run.reason);
    assert!(verify(&stack, Reexecute::Unspecified).await.unwrap().clean);
    let verdict = verify(&stack, Reexecute::Pure).await.unwrap();
    let events = client.events("r1").await.unwrap();
    let result = events.iter().find(|event| event.kind == "ResultRecorded").unwrap();
    assert!(!verdict.clean && verdict.first_bad_sequence == Some(result.sequence), "{verdict:?}");
    assert_eq!((verdict.divergence_class.as_str(), verdict.reexecuted), ("execution", 1));
    assert!(
        verdict.divergence.starts_with("RUN-E009") && verdict.divergence.contains("output has to be"),
        "{}",
        verdict.divergence
    );
    let refusal = Refusal::expected(verify(&stack, Reexecute::AllWasm).await);
    refusal.is(Code::InvalidArgument, "INVALID_ARGUMENT");
    assert!(refusal.text.contains("--sandbox-url"), "{}", refusal.text);
}
