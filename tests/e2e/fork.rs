//! Forks over the wire: a new run goes on where another one was, and repeats nothing of it.

use e2e::{
    document::{Definition, Plan},
    refusal::Refusal,
    shell_tool::ShellTool,
    stack::{Stack, Who},
};
use proto::runner::v1::{Budgets, ForkRunRequest, RunOptions, RunStatus, ShadowDifferenceKind, ShadowRunsRequest};
use serde_json::{Value, json};
use tonic::Code;

struct Chain {
    stack: Stack,
    tool: ShellTool,
    plan: String,
}

/// A plan of three host tools in a row.
async fn chain() -> Chain {
    let builder = Stack::builder().unwrap();
    let tool = ShellTool::doing(builder.directory()).unwrap();
    let command = tool.command();
    let stack = builder.runner(|flags| flags.tool_cmd(&command)).start().await.unwrap();
    let client = stack.client();
    let mut definitions = Vec::new();
    for node in ["a", "b", "c"] {
        definitions.push((node, client.put_definition(&Definition::tool(node)).await.unwrap()));
    }
    let plan = Plan::chain(definitions.iter().map(|(node, hash)| (*node, hash.as_str())));
    let plan = client.put_plan(&plan).await.unwrap();
    Chain { stack, tool, plan }
}

impl Chain {
    fn tools(&self) -> Vec<String> {
        self.tool.calls().into_iter().map(|call| call.tool).collect()
    }
}

#[tokio::test]
async fn a_run_whose_budget_is_spent_goes_on_exactly_there_with_a_higher_one() {
    let chain = chain().await;
    let client = chain.stack.client();
    let budgets = Some(Budgets { max_effects: Some(2), ..Default::default() });
    let options = RunOptions { budgets, ..Default::default() };
    let run = client.run_with("r1", &chain.plan, &json!({"n": 9_007_199_254_740_993_u64}), options).await.unwrap();
    assert_eq!(run.status(), RunStatus::BudgetExhausted, "{}", run.reason);
    let raised = Budgets { max_effects: Some(3), ..Default::default() };
    client.fork("r1", "r2", 0, raised).await.unwrap();
    let run = client.wait("r2").await.unwrap();
    assert_eq!(run.status(), RunStatus::Completed, "{}", run.reason);
    let output: Value = serde_json::from_str(&run.output_json).unwrap();
    assert_eq!(output["n"], json!(9_007_199_254_740_993_u64));
    assert_eq!(chain.tools(), ["a", "b", "c"], "nothing is done twice");
    assert_eq!(run.spent.unwrap().effects, 3, "what was spent before counts");
    assert!(client.verify("r2").await.unwrap().clean);

    let lineage = client.manifest("r2").await.unwrap().lineage.unwrap();
    assert_eq!((lineage.run_id.as_str(), lineage.superstep), ("r1", 2));
    assert_eq!(lineage.started_by, ["user:runner"]);
    let again = client.fork("r1", "r2", 0, raised).await.unwrap();
    assert_eq!(again.head_hash, run.head_hash, "the same call again finds the fork");
    let other = Refusal::expected(client.fork("r1", "r2", 1, raised).await);
    other.is(Code::AlreadyExists, "RUN_EXISTS").says("RUN-E016", &["r2"]);
}

#[tokio::test]
async fn a_shadow_run_says_what_a_candidate_plan_would_do_otherwise_and_dispatches_nothing() {
    let chain = chain().await;
    let client = chain.stack.client();
    client.run("r1", &chain.plan, &json!({})).await.unwrap();
    let before = (chain.tools(), client.get("r1").await.unwrap().events);
    let ask = |plan_hash: &str, run_ids: &[&str]| ShadowRunsRequest {
        namespace: "ops".to_owned(),
        run_ids: run_ids.iter().map(|run_id| (*run_id).to_owned()).collect(),
        plan_hash: plan_hash.to_owned(),
    };
    let same = client.runner().shadow_runs(ask(&chain.plan, &["r1"])).await.unwrap().into_inner();
    assert!(same.reports[0].same, "{same:?}");
    assert_eq!((same.reports[0].status(), same.reports[0].effects_matched), (RunStatus::Completed, 3));

    let mut candidate = Plan::new();
    for node in ["a", "b", "c"] {
        candidate = candidate.node(node, &client.put_definition(&Definition::tool(node)).await.unwrap());
    }
    let candidate = candidate.edge("a", "b").edge_if("b", "c", "never").edge_if("b", "c", "did_b == \"x\"");
    let candidate = client.put_plan(&candidate).await.unwrap();
    let answer = client.runner().shadow_runs(ask(&candidate, &["r1"])).await.unwrap().into_inner();
    let report = &answer.reports[0];
    let found: Vec<_> = report.differences.iter().map(|found| (found.kind(), found.superstep)).collect();
    assert_eq!(
        found,
        [
            (ShadowDifferenceKind::EdgeDoesNotFire, 2),
            (ShadowDifferenceKind::NodeDoesNotRun, 3),
            (ShadowDifferenceKind::Outcome, 0)
        ]
    );
    assert_eq!((report.differences[0].edge_src.as_str(), report.differences[0].edge_dst.as_str()), ("b", "c"));
    assert_eq!(report.status(), RunStatus::Stalled);
    assert!(answer.differences[0].contains("3 difference(s); first: the edge `b` -> `c`"), "{:?}", answer.differences);
    assert_eq!((chain.tools(), client.get("r1").await.unwrap().events), before, "nothing was dispatched or written");

    let refusal = Refusal::of(&client.runner().shadow_runs(ask(&candidate, &[])).await.unwrap_err());
    assert_eq!(refusal.is(Code::InvalidArgument, "INVALID_ARGUMENT").fields, ["run_ids"]);
    let ghost = client.runner().shadow_runs(ask(&candidate, &["r1", "ghost"])).await.unwrap_err();
    Refusal::of(&ghost).is(Code::NotFound, "RUN_NOT_FOUND");
}

#[tokio::test]
async fn a_fork_goes_on_behind_any_closed_superstep_with_the_same_plan_or_with_another() {
    let chain = chain().await;
    let client = chain.stack.client();
    client.run("r1", &chain.plan, &json!({})).await.unwrap();
    client.fork("r1", "r2", 1, Budgets::default()).await.unwrap();
    assert_eq!(client.wait("r2").await.unwrap().status(), RunStatus::Completed);
    assert_eq!(chain.tools(), ["a", "b", "c", "b", "c"]);
    let (forked, from) = (client.get("r2").await.unwrap(), client.get("r1").await.unwrap());
    let lineage = forked.lineage.expect("a fork says what it goes on from");
    assert_eq!((lineage.run_id.as_str(), lineage.superstep, from.lineage), ("r1", 1, None));

    let last = client.put_definition(&Definition::tool("last")).await.unwrap();
    let plan_hash = client.put_plan(&Plan::new().node("last", &last)).await.unwrap();
    let fork = ForkRunRequest {
        namespace: "ops".to_owned(),
        run_id: "r1".to_owned(),
        superstep: 2,
        new_run_id: "r3".to_owned(),
        plan_hash: plan_hash.clone(),
        ..Default::default()
    };
    client.fork_with(fork.clone()).await.unwrap();
    let run = client.wait("r3").await.unwrap();
    assert_eq!((run.status(), run.plan_hash.as_str()), (RunStatus::Completed, plan_hash.as_str()), "{}", run.reason);
    let output: Value = serde_json::from_str(&run.output_json).unwrap();
    assert_eq!(output, json!({"did_a": true, "did_b": true, "did_last": true}), "the state is the input");
    for run_id in ["r2", "r3"] {
        assert!(client.verify(run_id).await.unwrap().clean);
    }
    let open = Refusal::expected(client.fork("r1", "r4", 9, Budgets::default()).await);
    open.is(Code::InvalidArgument, "INVALID_ARGUMENT").says("", &["superstep 9", "not closed"]);
    assert_eq!(open.fields, ["superstep"]);
    let bad = Refusal::expected(client.fork("r1", "\n", 0, Budgets::default()).await);
    bad.is(Code::InvalidArgument, "BAD_RUN_ID").says("RUN-E020", &[]);
    Refusal::expected(client.fork("ghost", "r4", 0, Budgets::default()).await).is(Code::NotFound, "RUN_NOT_FOUND");
    let unknown = ForkRunRequest { plan_hash: "ab".repeat(32), new_run_id: "r4".to_owned(), ..fork };
    Refusal::expected(client.fork_with(unknown).await).says("RUN-E004", &["abab"]);
    let reader = chain.stack.client_of(Who::Reader);
    Refusal::expected(reader.fork("r1", "r4", 0, Budgets::default()).await).says("RUN-E012", &["run.execute"]);
}
