//! What keeps no run from starting and may be a mistake is said where somebody looks: in the answer, and in the log.

use e2e::{
    client::{NAMESPACE, request},
    document::{Definition, Plan},
    stack::{Stack, Who},
};
use proto::runner::v1::{
    PutDefinitionRequest, PutPlanRequest, StartRunRequest, ValidatePlanRequest, put_definition_request,
    put_plan_request::Document, validate_plan_request,
};
use serde_json::{Value, json};

/// Two tools in a row, with a reducer and a condition that are not spelt as somebody meant them.
fn misspelt(work: &str) -> Value {
    let mut plan = Plan::new().node("a", work).node("b", work).with("reducer", json!({"log": "append"})).json();
    plan["edges"] = json!([{"src": "a", "dst": "b", "condition": "never"}]);
    plan["description"] = json!("what describes a plan is no mistake");
    plan
}

#[tokio::test]
async fn a_plan_with_misspelt_keys_is_stored_validated_and_started_with_warnings_that_say_what_was_meant() {
    let stack = Stack::builder().unwrap().runner(|flags| flags.tool_cmd("cat")).start().await.unwrap();
    let client = stack.client();
    let work = client.put_definition(&Definition::tool("work")).await.unwrap();
    let text = misspelt(&work).to_string();
    let of_the_plan = "`reducer` is kept with the plan and does nothing: did you mean `reducers`?";
    let of_the_edge = "edges[0]: `condition` is no part of an edge and does nothing: did you mean `cond`?";

    let document = Some(Document::PlanJson(text.clone()));
    let put = PutPlanRequest { namespace: NAMESPACE.to_owned(), document };
    let put = client.catalog().put_plan(put).await.unwrap().into_inner();
    assert_eq!(put.warnings, [of_the_plan, of_the_edge]);

    let ask = |plan| ValidatePlanRequest { namespace: NAMESPACE.to_owned(), plan: Some(plan) };
    let text = validate_plan_request::Plan::PlanJson(text);
    let validated = client.catalog().validate_plan(ask(text)).await.unwrap().into_inner();
    assert_eq!(
        (validated.problems.len(), validated.warnings),
        (0, vec![of_the_plan.to_owned(), of_the_edge.to_owned()])
    );
    // The grain has no place for what an edge does not have.
    let stored = validate_plan_request::Plan::PlanHash(put.plan_hash.clone());
    let validated = client.catalog().validate_plan(ask(stored)).await.unwrap().into_inner();
    assert_eq!((validated.problems.len(), validated.warnings), (0, vec![of_the_plan.to_owned()]));

    let start = StartRunRequest { wait: true, ..request("r1", &put.plan_hash, &json!({})) };
    let started = client.runner().start_run(start.clone()).await.unwrap().into_inner();
    assert_eq!(started.warnings, [of_the_plan]);
    let again = client.runner().start_run(start).await.unwrap().into_inner();
    assert!(again.existing && again.warnings.is_empty(), "{again:?}");
}

#[tokio::test]
async fn a_definition_with_a_misspelt_key_is_stored_with_a_warning_that_says_what_was_meant() {
    let stack = Stack::builder().unwrap().start().await.unwrap();
    let put = |definition: Definition| {
        let catalog = stack.client().catalog();
        let document = Some(put_definition_request::Document::DefinitionJson(definition.json().to_string()));
        async move {
            let put = PutDefinitionRequest { namespace: NAMESPACE.to_owned(), document };
            catalog.clone().put_definition(put).await.unwrap().into_inner().warnings
        }
    };
    let misspelt = put(Definition::tool("pay").with("locked_param", json!({"to": "alice"}))).await;
    assert_eq!(
        misspelt,
        ["`locked_param` is kept with the definition and does nothing: did you mean `locked_params`?"]
    );
    assert_eq!(put(Definition::tool("pay").with("locked_params", json!({"to": "alice"}))).await, Vec::<String>::new());
}

#[tokio::test]
async fn a_run_whose_asks_nobody_can_answer_says_so_when_it_starts_and_while_it_waits() {
    // A caller on this host is the one principal that there is.
    let mut stack = Stack::builder().unwrap().without_tokens().start().await.unwrap();
    let client = stack.client();
    let asking = client.put_definition(&Definition::client("approve")).await.unwrap();
    let inner = client.put_plan(&Plan::new().node("approve", &asking)).await.unwrap();
    let plan = client.put_plan(&Plan::new().node("sub", &inner)).await.unwrap();
    let started = client.runner().start_run(request("r1", &plan, &json!({}))).await.unwrap().into_inner();
    let said = "no principal with run.respond but those who started it is known: its asks cannot be answered";
    assert_eq!(started.warnings.len(), 1, "{started:?}");
    assert!(started.warnings[0].starts_with("node \"approve\": ") && started.warnings[0].contains(said), "{started:?}");
    let run = client.wait_ask("r1").await.unwrap();
    let barred = run.waiting.iter().any(|waiting| waiting.unblocked_by.contains("no other principal with run.respond"));
    assert!(barred, "{:?}", run.waiting);
    let log = stack.runner.process().log_text();
    let lines: Vec<Value> =
        log.lines().filter(|line| line.contains(said)).map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines.len(), 1, "{lines:?}");
    assert_eq!(
        (&lines[0]["level"], &lines[0]["run_id"], &lines[0]["node"]),
        (&json!("WARN"), &json!("r1"), &json!("approve"))
    );
}

#[tokio::test]
async fn where_somebody_else_may_answer_nothing_is_said() {
    let mut stack = Stack::builder().unwrap().start().await.unwrap();
    let client = stack.client();
    let plan = client.put_work(&Definition::client("approve")).await.unwrap();
    let start = StartRunRequest { wait: true, ..request("r1", &plan, &json!({})) };
    let started = client.runner().start_run(start).await.unwrap().into_inner();
    assert!(started.warnings.is_empty(), "{started:?}");
    let waiting = started.run.unwrap().waiting;
    assert!(waiting.iter().all(|waiting| !waiting.unblocked_by.contains("no other principal")), "{waiting:?}");
    assert!(!stack.runner.process().log_text().contains("cannot be answered"));
    let ask = client.asks("r1").await.unwrap().remove(0);
    stack.client_of(Who::Approver).respond(&ask, &json!({})).await.unwrap();
}
