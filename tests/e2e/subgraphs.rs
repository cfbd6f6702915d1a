//! Subgraphs: child runs beside each other, their asks on their parent, one cancel for all, no place of their own.

use std::time::Instant;

use e2e::{
    client::{Client, NAMESPACE, request},
    document::{Definition, Plan},
    process::{PATIENCE, POLL},
    refusal::Refusal,
    shell_tool::ShellTool,
    stack::{Builder, Stack, Who},
};
use proto::runner::v1::{
    Ask, Budgets, CancelResult, ListRunsRequest, NodePolicy, RespondToAskRequest, Run, RunOptions, RunStatus,
    StartRunRequest, respond_to_ask_request::AnswerDocument,
};
use serde_json::{Value, json};
use tonic::{Code, Status};

/// Blocks until a file `gate` is beside the script; ends with the test's folder.
const GATED: &str = "cat > /dev/null; dir=$(dirname \"$0\"); while [ -e \"$0\" ] && [ ! -e \"$dir/gate\" ]; do sleep 0.02; done; \
                     printf '{\"did_%s\": true}' \"$AREEV_TOOL_NAME\"";

async fn until(what: &str, condition: impl Fn() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !condition() {
        assert!(Instant::now() < deadline, "{what}");
        tokio::time::sleep(POLL).await;
    }
}

fn output(run: &Run) -> Value {
    assert_eq!(run.status(), RunStatus::Completed, "{}", run.reason);
    serde_json::from_str(&run.output_json).unwrap()
}

/// A plan of the one node `name`, bound to a tool of that name.
async fn plan_of_tool(client: &Client, name: &str) -> String {
    let tool = client.put_definition(&Definition::tool(name)).await.unwrap();
    client.put_plan(&Plan::new().node(name, &tool)).await.unwrap()
}

/// A plan `approve → send`: a person, then a tool.
async fn plan_of_ask(client: &Client) -> String {
    let approve = client.put_definition(&Definition::client("approve")).await.unwrap();
    let send = client.put_definition(&Definition::tool("send")).await.unwrap();
    client.put_plan(&Plan::chain([("approve", &*approve), ("send", &send)])).await.unwrap()
}

/// `fork`, then `left` and `right` beside each other as subgraphs, then `join`.
async fn forked(client: &Client, left: &str, right: &str) -> String {
    let tool = client.put_definition(&Definition::tool("step")).await.unwrap();
    let plan = Plan::new().node("fork", &tool).node("left", left).node("right", right).node("join", &tool);
    let plan = plan.edge("fork", "left").edge("fork", "right").edge("left", "join").edge("right", "join");
    client.put_plan(&plan).await.unwrap()
}

/// A plan of the one node `sub`, bound to another plan.
async fn around(client: &Client, inner: &str) -> String {
    client.put_plan(&Plan::new().node("sub", inner)).await.unwrap()
}

fn with_tool(builder: Builder, body: &str) -> (Builder, ShellTool) {
    let tool = ShellTool::write(builder.directory(), "tool.sh", body).unwrap();
    let command = tool.command();
    (builder.runner(|flags| flags.tool_cmd(&command)), tool)
}

async fn doing() -> (Stack, ShellTool) {
    let builder = Stack::builder().unwrap();
    let (builder, tool) = with_tool(builder, "cat > /dev/null; printf '{\"did_%s\": true}' \"$AREEV_TOOL_NAME\"");
    (builder.start().await.unwrap(), tool)
}

async fn list(client: &Client, change: impl FnOnce(&mut ListRunsRequest)) -> Result<Vec<Run>, Status> {
    let mut request = ListRunsRequest { namespace: NAMESPACE.to_owned(), ..Default::default() };
    change(&mut request);
    Ok(client.runner().list_runs(request).await?.into_inner().runs)
}

async fn children(client: &Client, run_id: &str) -> Vec<Run> {
    list(client, |request| request.parent_run_id = run_id.to_owned()).await.unwrap()
}

/// Answers an ask by the id of any run that it surfaces on.
async fn respond(client: &Client, run_id: &str, ask: &Ask) -> Result<Run, Status> {
    let request = RespondToAskRequest {
        namespace: NAMESPACE.to_owned(),
        run_id: run_id.to_owned(),
        tool_call_id: ask.tool_call_id.clone(),
        is_error: false,
        answer_document: Some(AnswerDocument::AnswerJson(json!({"approved": true}).to_string())),
    };
    Ok(client.runner().respond_to_ask(request).await?.into_inner().run.unwrap())
}

#[tokio::test]
async fn two_subgraphs_run_beside_each_other_and_their_states_merge_into_their_parents() {
    let (builder, tool) = with_tool(Stack::builder().unwrap(), GATED);
    let stack = builder.start().await.unwrap();
    let client = stack.client();
    let (left, right) = (plan_of_tool(&client, "l").await, plan_of_tool(&client, "r").await);
    let gate = stack.directory().join("gate");
    std::fs::write(&gate, "").unwrap();
    let plan = forked(&client, &left, &right).await;
    std::fs::remove_file(&gate).unwrap();
    client.start("r1", &plan, &json!({"n": 9_007_199_254_740_993_u64})).await.unwrap();
    until("fork", || tool.calls().len() == 1).await;
    std::fs::write(&gate, "").unwrap();
    until("left and right", || tool.calls().len() >= 2).await;
    let run = client.wait("r1").await.unwrap();
    assert_eq!(output(&run), json!({"n": 9_007_199_254_740_993_u64, "did_step": true, "did_l": true, "did_r": true}));

    let manifest = client.manifest("r1").await.unwrap();
    let left_node = &manifest.nodes[1];
    assert_eq!((left_node.kind.as_str(), left_node.effect_class.as_str()), ("subgraph", "child"));
    assert_eq!((left_node.plan_hash.as_str(), left_node.definition_hash.as_str()), (left.as_str(), ""));

    let entries = client.entries("r1").await.unwrap();
    let subgraphs: Vec<_> = entries.iter().filter(|entry| entry.kind == "subgraph").collect();
    assert_eq!(subgraphs.len(), 2);
    for entry in subgraphs {
        assert_eq!(entry.child_run_id, format!("r1~{}", &entry.tool_call_id[..16]));
        let child = client.get(&entry.child_run_id).await.unwrap();
        assert_eq!((child.parent_run_id.as_str(), &child.parent_tool_call_id), ("r1", &entry.tool_call_id));
        assert_eq!(child.principal, run.principal);
        assert_eq!(child.output_json, entry.output_json);
        assert!(client.verify(&entry.child_run_id).await.unwrap().clean);
    }
    assert!(client.verify("r1").await.unwrap().clean);
    assert_eq!(run.spent.unwrap().tool_calls, 4, "what its children did is what it did");
    let actions = client.step_actions(&plan).await.unwrap();
    assert!(actions.iter().all(|action| !action.grain_hash.is_empty()), "each effect has its grain");

    let ids = |runs: Vec<Run>| runs.into_iter().map(|run| run.run_id).collect::<Vec<_>>();
    assert_eq!(ids(list(&client, |_| {}).await.unwrap()), ["r1"], "a list shows what callers started");
    assert_eq!(ids(list(&client, |request| request.include_children = true).await.unwrap()).len(), 3);
    assert_eq!(children(&client, "r1").await.len(), 2);
    let both = list(&client, |request| {
        request.parent_run_id = "r1".to_owned();
        request.plan_hash = left.clone();
    });
    Refusal::expected(both.await).is(Code::InvalidArgument, "INVALID_ARGUMENT");
}

#[tokio::test]
async fn subgraphs_are_in_flight_at_the_same_time() {
    let (builder, tool) = with_tool(Stack::builder().unwrap(), GATED);
    let stack = builder.start().await.unwrap();
    let client = stack.client();
    let (left, right) = (plan_of_tool(&client, "l").await, plan_of_tool(&client, "r").await);
    let pass = client.put_definition(&Definition::client("pass")).await.unwrap();
    let plan = Plan::new().node("pass", &pass).node("left", &left).node("right", &right);
    let plan = client.put_plan(&plan.edge("pass", "left").edge("pass", "right")).await.unwrap();
    let run = client.run("r1", &plan, &json!({})).await.unwrap();
    stack.client_of(Who::Approver).respond(&run.asks[0], &json!({})).await.unwrap();
    // Neither answers before the other was called.
    until("both are called before one has answered", || tool.calls().len() == 2).await;
    assert_eq!(client.get("r1").await.unwrap().status(), RunStatus::Running);
    std::fs::write(stack.directory().join("gate"), "").unwrap();
    assert_eq!(output(&client.wait("r1").await.unwrap()), json!({"did_l": true, "did_r": true}));
}

#[tokio::test]
async fn a_childs_ask_surfaces_on_every_run_above_it_and_is_answered_there_or_here_by_anyone_but_the_starter() {
    let (mut stack, tool) = doing().await;
    let client = stack.client();
    let inner = plan_of_ask(&client).await;
    let plan = around(&client, &around(&client, &inner).await).await;
    for (number, answered_at_the_top) in [true, false].into_iter().enumerate() {
        let run_id = format!("r{number}");
        let run = stack.client().run(&run_id, &plan, &json!({"amount": 12})).await.unwrap();
        assert_eq!(run.status(), RunStatus::Waiting, "a wait until the first ask hears of a child's");
        let asks = stack.client().asks(&run_id).await.unwrap();
        assert_eq!((asks.len(), &asks), (1, &run.asks));
        let ask = asks[0].clone();
        assert!(ask.run_id.starts_with(&format!("{run_id}~")), "{}", ask.run_id);
        let waiting: Vec<_> = run.waiting.iter().map(|waiting| waiting.what.as_str()).collect();
        assert!(
            waiting.iter().any(|what| what.starts_with("child run ") && what.contains("answer to ask")),
            "{waiting:?}"
        );
        assert_eq!(list(&stack.client(), |_| {}).await.unwrap()[0].status(), RunStatus::Waiting);

        // The asks and their addresses survive a crash of everything.
        stack.runner.process().kill().unwrap();
        stack.runner.restart().await.unwrap();
        let again = stack.client().wait_ask(&run_id).await.unwrap();
        assert_eq!(again.asks, std::slice::from_ref(&ask));

        let at = if answered_at_the_top { &run_id } else { &ask.run_id };
        let refusal = Refusal::expected(respond(&stack.client(), at, &ask).await);
        refusal.says("RUN-E012", &["user:runner"]);
        let approver = stack.client_of(Who::Approver);
        let run = respond(&approver, at, &ask).await.unwrap();
        assert_eq!(&run.run_id, at);
        assert!(run.asks.is_empty(), "an answered ask is nowhere open");
        respond(&approver, at, &ask).await.expect("the same call again is acknowledged again");
        let named = Ask { run_id: at.clone(), ..ask.clone() };
        let refusal = Refusal::expected(approver.respond(&named, &json!({"approved": false})).await);
        refusal.says("RUN-E011", &["was answered by user:approver", "the first answer stands"]);
        let run = stack.client().wait(&run_id).await.unwrap();
        assert_eq!(output(&run), json!({"amount": 12, "approved": true, "did_send": true}));
        assert!(stack.client().verify(&run_id).await.unwrap().clean);
    }
    assert_eq!(tool.calls().len(), 2);
}

#[tokio::test]
async fn a_subgraph_that_cannot_run_here_is_refused_before_anything_is_written() {
    let (stack, _tool) = doing().await;
    let client = stack.client();
    let code = client.put_blob(b"not reviewed").await.unwrap();
    let inner = client.put_work(&Definition::code("work", &code)).await.unwrap();
    let plan = around(&client, &inner).await;
    let refusal = Refusal::expected(client.start("r1", &plan, &json!({})).await);
    refusal.says("RUN-E018", &["node `sub` runs the plan", &inner, "node `work`", "--allow-executor"]);
    Refusal::expected(client.get("r1").await).is(Code::NotFound, "RUN_NOT_FOUND");
    assert!(list(&client, |request| request.include_children = true).await.unwrap().is_empty());
}

#[tokio::test]
async fn the_id_of_a_child_run_is_not_a_callers_to_take() {
    let (stack, _tool) = doing().await;
    let plan = plan_of_tool(&stack.client(), "work").await;
    let refusal = Refusal::expected(stack.client().start("r1~0123456789abcdef", &plan, &json!({})).await);
    refusal.says("RUN-E020", &["child run"]);
    // And an id that leaves no room for its children's is refused before the run exists.
    let plan = around(&stack.client(), &plan).await;
    let refusal = Refusal::expected(stack.client().start(&"x".repeat(112), &plan, &json!({})).await);
    refusal.says("RUN-E020", &["112 bytes", "at most 111"]);
    let run = stack.client().run(&"x".repeat(111), &plan, &json!({})).await.unwrap();
    assert_eq!(run.status(), RunStatus::Completed, "{}", run.reason);
}

#[tokio::test]
async fn one_cancel_stops_every_run_below_and_every_process_of_their_tools() {
    let builder = Stack::builder().unwrap();
    let (builder, tool) = with_tool(builder, "echo $$ >> \"$0.pids\"; exec sleep 1000");
    let stack = builder.start().await.unwrap();
    let client = stack.client();
    let (left, right) = (plan_of_tool(&client, "l").await, around(&client, &plan_of_tool(&client, "r").await).await);
    let pass = client.put_definition(&Definition::client("pass")).await.unwrap();
    let plan = Plan::new().node("pass", &pass).node("left", &left).node("right", &right);
    let plan = client.put_plan(&plan.edge("pass", "left").edge("pass", "right")).await.unwrap();
    let run = client.run("r1", &plan, &json!({})).await.unwrap();
    stack.client_of(Who::Approver).respond(&run.asks[0], &json!({})).await.unwrap();
    let pids = tool.path().with_file_name("tool.sh.pids");
    let read = || std::fs::read_to_string(&pids).unwrap_or_default();
    until("both tools run", || read().lines().count() == 2).await;

    let receipt = client.cancel("r1", "enough").await.unwrap();
    assert_eq!(receipt.result(), CancelResult::Canceled);
    // Two subgraphs of this run, one of the right child, and two tools.
    assert_eq!(receipt.effects_stopped, 5);
    let mut below = children(&client, "r1").await;
    below.extend(children(&client, &below[1].run_id).await);
    assert_eq!(below.len(), 3);
    for run in &below {
        assert_eq!(run.status(), RunStatus::Canceled);
        assert!(run.reason.contains("user:runner") && run.reason.contains("parent"), "{}", run.reason);
        assert!(client.verify(&run.run_id).await.unwrap().clean);
    }
    assert!(client.verify("r1").await.unwrap().clean);
    for pid in read().lines() {
        let process = std::path::Path::new("/proc").join(pid).join("stat");
        let alive = || {
            let stat = std::fs::read_to_string(&process).unwrap_or_default();
            stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with('Z'))
        };
        until("a tool's process still runs", || !alive()).await;
    }
}

#[tokio::test]
async fn a_child_that_is_canceled_by_itself_fails_its_parents_node_by_name() {
    let (stack, _tool) = doing().await;
    let client = stack.client();
    let plan = around(&client, &plan_of_ask(&client).await).await;
    let run = client.run("r1", &plan, &json!({})).await.unwrap();
    client.cancel(&run.asks[0].run_id, "not this part").await.unwrap();
    let run = client.wait("r1").await.unwrap();
    assert_eq!((run.status(), run.failed_node.as_str()), (RunStatus::Failed, "sub"));
    assert!(run.reason.contains("RUN-E013") && run.reason.contains("not this part"), "{}", run.reason);
}

#[tokio::test]
async fn child_runs_take_no_place_of_the_cap_so_that_a_full_runner_never_waits_for_itself() {
    let builder = Stack::builder().unwrap().runner(|flags| flags.value("--max-concurrent-runs", "1"));
    let (builder, _tool) = with_tool(builder, "cat > /dev/null; printf '{\"did_%s\": true}' \"$AREEV_TOOL_NAME\"");
    let stack = builder.start().await.unwrap();
    let client = stack.client();
    let inner = plan_of_ask(&client).await;
    let plan = forked(&client, &around(&client, &inner).await, &inner).await;
    let run = client.run("r1", &plan, &json!({})).await.unwrap();
    assert_eq!(run.status(), RunStatus::Waiting);
    let refusal = Refusal::expected(client.start("r2", &plan, &json!({})).await);
    refusal.says("RUN-E027", &[]);
    until("both ask", || true).await;
    let approver = stack.client_of(Who::Approver);
    loop {
        let run = client.wait_ask("r1").await.unwrap();
        let Some(ask) = run.asks.first() else {
            assert_eq!(run.status(), RunStatus::Completed, "{}", run.reason);
            break;
        };
        respond(&approver, "r1", ask).await.unwrap();
    }
    client.start("r2", &plan, &json!({})).await.unwrap();
}

#[tokio::test]
async fn a_subgraph_that_takes_longer_than_its_nodes_timeout_is_canceled_and_has_timed_out() {
    let (stack, _tool) = doing().await;
    let client = stack.client();
    let plan = around(&client, &plan_of_ask(&client).await).await;
    let timeout = Some(prost_types::Duration { seconds: 0, nanos: 50_000_000 });
    let node_policies = vec![NodePolicy { node: "sub".to_owned(), timeout, ..Default::default() }];
    let options = RunOptions { node_policies, ..Default::default() };
    let start = StartRunRequest { options: Some(options), ..request("r1", &plan, &json!({})) };
    client.start_with(start).await.unwrap();
    let run = client.wait("r1").await.unwrap();
    assert_eq!(run.status(), RunStatus::Failed);
    assert!(run.reason.contains("(timeout)"), "{}", run.reason);
    assert_eq!(children(&client, "r1").await[0].status(), RunStatus::Canceled);
}

#[tokio::test]
async fn a_budget_holds_for_a_run_with_all_that_is_below_it() {
    let (stack, tool) = doing().await;
    let client = stack.client();
    let step = client.put_definition(&Definition::tool("step")).await.unwrap();
    let steps: Vec<String> = (0..5).map(|number| format!("s{number}")).collect();
    let inner = Plan::chain(steps.iter().map(|name| (name.as_str(), step.as_str())));
    let plan = around(&client, &client.put_plan(&inner).await.unwrap()).await;
    let budgets = Some(Budgets { max_tool_calls: Some(3), ..Default::default() });
    let run = client.run_with("r1", &plan, &json!({}), RunOptions { budgets, ..Default::default() }).await.unwrap();
    assert_eq!(run.status(), RunStatus::Failed);
    assert!(run.reason.starts_with("RUN-E007") && run.reason.contains("max_tool_calls"), "{}", run.reason);
    assert_eq!(tool.calls().len(), 3);
    assert_eq!(children(&client, "r1").await[0].status(), RunStatus::BudgetExhausted);
}

#[tokio::test]
async fn a_drain_leaves_parents_and_children_that_wait_for_people_to_the_next_start() {
    let (mut stack, _tool) = doing().await;
    let client = stack.client();
    let plan = around(&client, &plan_of_ask(&client).await).await;
    let run = client.run("r1", &plan, &json!({})).await.unwrap();
    let status = stack.runner.process().terminate().unwrap();
    assert!(status.success(), "{status}");
    stack.runner.restart().await.unwrap();
    respond(&stack.client_of(Who::Approver), &run.asks[0].run_id, &run.asks[0]).await.unwrap();
    let run = stack.client().wait("r1").await.unwrap();
    assert_eq!(output(&run), json!({"approved": true, "did_send": true}));
    assert_eq!(children(&stack.client(), "r1").await.len(), 1);
}
