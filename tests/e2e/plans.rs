//! Plans of many nodes: joins, conditions, retries, reducers, cycles, budgets.

use e2e::{
    client::{Client, request},
    document::{Definition, Plan},
    refusal::Refusal,
    shell_tool::ShellTool,
    stack::Stack,
};
use proto::runner::v1::{Budgets, NodePolicy, Run, RunOptions, RunStatus};
use serde_json::{Value, json};
use tonic::Code;

struct Workshop {
    stack: Stack,
    tool: ShellTool,
}

impl Workshop {
    /// A runner with a tool command. The state is on its standard input.
    async fn open(body: &str) -> Self {
        let builder = Stack::builder().unwrap();
        let tool = ShellTool::write(builder.directory(), "tool.sh", body).unwrap();
        let command = tool.command();
        let stack = builder.runner(|flags| flags.tool_cmd(&command)).start().await.unwrap();
        Self { stack, tool }
    }

    fn client(&self) -> Client {
        self.stack.client()
    }

    /// Authors a definition per name; the plan is made of their hashes.
    async fn plan<const N: usize>(&self, names: [&str; N], plan: impl FnOnce([String; N]) -> Plan) -> String {
        let mut hashes = [const { String::new() }; N];
        for (hash, name) in hashes.iter_mut().zip(names) {
            *hash = self.client().put_definition(&Definition::tool(name)).await.unwrap();
        }
        self.client().put_plan(&plan(hashes)).await.unwrap()
    }

    async fn run(&self, plan: &str, input: Value) -> Run {
        let run = self.client().run("r1", plan, &input).await.unwrap();
        assert!(self.client().verify("r1").await.unwrap().clean);
        run
    }

    fn called(&self) -> Vec<String> {
        self.tool.calls().into_iter().map(|call| call.tool).collect()
    }
}

/// Answers `{"did_<tool>": true}`.
const DO: &str = "cat > /dev/null; printf '{\"did_%s\": true}' \"$AREEV_TOOL_NAME\"";

fn output(run: &Run) -> Value {
    assert_eq!(run.status(), RunStatus::Completed, "{}", run.reason);
    serde_json::from_str(&run.output_json).expect("the output is JSON")
}

#[tokio::test]
async fn a_join_waits_for_all_its_branches() {
    let shop = Workshop::open(DO).await;
    let plan = shop
        .plan(["a", "b", "c", "d"], |[a, b, c, d]| {
            let nodes = Plan::new().node("a", &a).node("b", &b).node("c", &c).node("d", &d);
            nodes.edge("a", "b").edge("a", "c").edge("b", "d").edge("c", "d")
        })
        .await;
    let run = shop.run(&plan, json!({"q": 1})).await;
    assert_eq!(output(&run), json!({"q": 1, "did_a": true, "did_b": true, "did_c": true, "did_d": true}));
    let mut called = shop.called();
    assert_eq!((called.remove(0), called.pop().unwrap()), ("a".to_owned(), "d".to_owned()));
    called.sort();
    assert_eq!(called, ["b", "c"]);
    assert_eq!(run.supersteps, 3);
}

#[tokio::test]
async fn a_condition_picks_the_path_and_the_other_is_dead() {
    let shop = Workshop::open(DO).await;
    let plan = shop
        .plan(["a", "cheap", "dear", "end"], |[a, cheap, dear, end]| {
            let nodes = Plan::new().node("a", &a).node("cheap", &cheap).node("dear", &dear).node("end", &end);
            nodes
                .edge_if("a", "cheap", "order.class == \"cheap\"")
                .edge_if("a", "dear", "order.class != \"cheap\"")
                .edge("cheap", "end")
                .edge("dear", "end")
        })
        .await;
    let run = shop.run(&plan, json!({"order": {"class": "dear"}})).await;
    let output = output(&run);
    assert_eq!((&output["did_dear"], &output["did_cheap"]), (&json!(true), &Value::Null));
    assert_eq!(shop.called(), ["a", "dear", "end"], "the join needs one path that fired");
}

#[tokio::test]
async fn a_failed_attempt_is_tried_again_as_often_as_the_plan_says() {
    // Fails twice, then succeeds: the file grows by a line a call.
    let shop =
        Workshop::open("cat > /dev/null; [ $(wc -l < \"$0.calls\") -ge 3 ] || exit 7; echo '{\"ok\":true}'").await;
    let plan = shop.plan(["work"], |[work]| Plan::work(&work).with("retries", json!({"work": 2}))).await;
    let run = shop.run(&plan, json!({})).await;
    assert_eq!(output(&run), json!({"ok": true}));
    let calls = shop.tool.calls();
    assert_eq!(calls.len(), 3);
    assert!(calls[0].key != calls[1].key && calls[1].key != calls[2].key, "each attempt has a key of its own");
    let entries = shop.client().entries("r1").await.unwrap();
    let attempts: Vec<_> = entries.iter().map(|entry| (entry.attempt, entry.status.as_str())).collect();
    assert_eq!(attempts, [(1, "failed"), (2, "failed"), (3, "completed")]);
    assert_eq!(
        entries.iter().map(|entry| entry.idempotency_key.clone()).collect::<Vec<_>>(),
        calls.iter().map(|call| call.key.clone()).collect::<Vec<_>>()
    );
}

#[tokio::test]
async fn a_node_that_fails_for_good_ends_the_run_by_name() {
    let shop = Workshop::open("echo 'the disk is on fire' >&2; exit 3").await;
    let plan = shop
        .plan(["work", "after"], |[work, after]| {
            Plan::chain([("work", &*work), ("after", &after)]).with("retries", json!({"work": 1}))
        })
        .await;
    let run = shop.run(&plan, json!({})).await;
    assert_eq!((run.status(), run.failed_node.as_str()), (RunStatus::Failed, "work"));
    assert_eq!(shop.called(), ["work", "work"]);
    let actions = shop.client().step_actions(&plan).await.unwrap();
    let last = actions.last().unwrap();
    assert_eq!((last.status.as_str(), last.failure_cause.as_str()), ("failed", "executor_error"));
    assert!(last.failure_detail.contains("the disk is on fire"), "{}", last.failure_detail);
}

#[tokio::test]
async fn results_merge_through_the_reducers_in_node_order() {
    let answer = r#"cat > /dev/null; case "$AREEV_TOOL_NAME" in
        a) echo '{"sum":1,"log":["start"],"max":3,"min":3,"last":"a"}';;
        b) sleep 0.3; echo '{"sum":10,"log":"b","max":9,"min":5,"last":"b"}';;
        c) echo '{"sum":100,"log":["c","c"],"max":4,"min":-2,"last":"c"}';;
    esac"#;
    let shop = Workshop::open(answer).await;
    let plan = shop
        .plan(["a", "b", "c"], |[a, b, c]| {
            let nodes = Plan::new().node("a", &a).node("b", &b).node("c", &c).edge("a", "b").edge("a", "c");
            nodes.with("reducers", json!({"sum": "sum", "log": "append", "max": "max", "min": "min", "last": "lww"}))
        })
        .await;
    let run = shop.run(&plan, json!({})).await;
    // `b` finishes after `c`, and merges before it all the same.
    let expected = json!({"sum": 111, "log": ["start", "b", "c", "c"], "max": 9, "min": -2, "last": "c"});
    assert_eq!(output(&run), expected);
}

#[tokio::test]
async fn a_bounded_cycle_goes_round_until_its_condition_ends_it() {
    let shop = Workshop::open("cat > /dev/null; echo '{\"rounds\":1}'").await;
    let plan = shop
        .plan(["step", "end"], |[step, end]| {
            let nodes = Plan::new().node("step", &step).node("end", &end).with("reducers", json!({"rounds": "sum"}));
            nodes.back_edge("step", "step", "rounds != 3", 10).edge_if("step", "end", "rounds == 3")
        })
        .await;
    let run = shop.run(&plan, json!({})).await;
    assert_eq!(output(&run)["rounds"], json!(4), "three rounds of `step`, then `end`");
    assert_eq!(shop.called(), ["step", "step", "step", "end"]);
}

#[tokio::test]
async fn a_run_whose_conditions_are_all_false_stalls_by_name() {
    let shop = Workshop::open(DO).await;
    let plan = shop
        .plan(["a", "b"], |[a, b]| Plan::new().node("a", &a).node("b", &b).edge_if("a", "b", "never == true"))
        .await;
    let run = shop.run(&plan, json!({})).await;
    assert_eq!(run.status(), RunStatus::Stalled);
    assert!(run.reason.starts_with("RUN-E001") && run.reason.contains('a'), "{}", run.reason);
    assert_eq!(run.failed_node, "a");
}

#[tokio::test]
async fn a_spent_budget_parks_the_run_before_the_next_effect() {
    let shop = Workshop::open(DO).await;
    let plan = shop.plan(["a", "b", "c"], |[a, b, c]| Plan::chain([("a", &*a), ("b", &b), ("c", &c)])).await;
    let budgets = Some(Budgets { max_tool_calls: Some(2), ..Default::default() });
    let options = RunOptions { budgets, ..Default::default() };
    let run = shop.client().run_with("r1", &plan, &json!({}), options).await.unwrap();
    assert_eq!(run.status(), RunStatus::BudgetExhausted);
    assert!(run.reason.starts_with("RUN-E007") && run.reason.contains("max_tool_calls"), "{}", run.reason);
    assert_eq!(shop.called(), ["a", "b"]);
    assert!(shop.client().verify("r1").await.unwrap().clean);
}

#[tokio::test]
async fn an_effect_past_its_timeout_is_stopped_and_says_so() {
    let shop = Workshop::open("while [ -e \"$0\" ]; do sleep 0.05; done").await;
    let plan = shop.plan(["work"], |[work]| Plan::work(&work)).await;
    let timeout = Some(prost_types::Duration { seconds: 0, nanos: 300_000_000 });
    let node_policies = vec![NodePolicy { node: "work".into(), timeout, backoff: None }];
    let options = RunOptions { node_policies, ..Default::default() };
    let run = shop.client().run_with("r1", &plan, &json!({}), options).await.unwrap();
    assert_eq!(run.status(), RunStatus::Failed);
    assert_eq!(shop.client().step_actions(&plan).await.unwrap()[0].failure_cause, "timeout");
    assert!(shop.client().verify("r1").await.unwrap().clean);
}

#[tokio::test]
async fn an_input_that_is_no_object_becomes_one() {
    let shop = Workshop::open("cat").await;
    let plan = shop.plan(["work"], |[work]| Plan::work(&work)).await;
    assert_eq!(output(&shop.run(&plan, json!([1, 2])).await), json!({"input": [1, 2]}));
}

#[tokio::test]
async fn a_result_that_is_no_object_goes_under_its_node() {
    let shop = Workshop::open("cat > /dev/null; echo 42").await;
    let plan = shop.plan(["work"], |[work]| Plan::work(&work)).await;
    assert_eq!(output(&shop.run(&plan, json!({"q": 1})).await), json!({"q": 1, "work": 42}));
}

#[tokio::test]
async fn starting_the_same_run_again_finds_it_and_dispatches_nothing() {
    let shop = Workshop::open(DO).await;
    let plan = shop.plan(["work"], |[work]| Plan::work(&work)).await;
    let first = shop.run(&plan, json!({"q": 1})).await;
    let again = shop.client().runner().start_run(request("r1", &plan, &json!({"q": 1}))).await.unwrap().into_inner();
    assert!(again.existing);
    assert_eq!(again.run.unwrap().head_hash, first.head_hash);
    assert_eq!(shop.called(), ["work"]);
    let refusal = Refusal::expected(shop.client().start("r1", &plan, &json!({"q": 2})).await);
    refusal.is(Code::AlreadyExists, "RUN_EXISTS");
    refusal.says("RUN-E016", &["r1"]);
}
