//! Codes that a run ends with, and those of asks.

use e2e::{
    client::request,
    document::{Definition, Plan},
    process::POLL,
    shell_tool::ShellTool,
    stack::{Stack, Who},
};
use proto::{
    fault::Reason,
    runner::v1::{Budgets, OnDangling, RunOptions, RunStatus, StartRunRequest},
};
use serde_json::json;

use super::{Raised, ended, nothing, refused};

pub async fn raise(reason: Reason, stack: &Stack) -> Raised {
    let client = stack.client();
    let hash = client.put_definition(&Definition::tool("work")).await.unwrap();
    let two = Plan::new().node("a", &hash).node("b", &hash);
    match reason {
        Reason::Stalled => {
            let plan = client.put_plan(&two.edge_if("a", "b", "never")).await.unwrap();
            let run = client.run("stalled", &plan, &nothing()).await.unwrap();
            assert_eq!(run.status(), RunStatus::Stalled);
            ended(run, &["`a`", "conditions"])
        }
        Reason::BudgetExhausted => {
            let plan = client.put_plan(&two.edge("a", "b")).await.unwrap();
            let budgets = Budgets { max_effects: Some(1), ..Default::default() };
            let options = RunOptions { budgets: Some(budgets), ..Default::default() };
            let run = client.run_with("exhausted", &plan, &nothing(), options).await.unwrap();
            assert_eq!(run.status(), RunStatus::BudgetExhausted);
            ended(run, &["max_effects of 1", "ForkRun with a higher one"])
        }
        Reason::DanglingIntent => dangling().await,
        Reason::AskNotOpen => {
            let (ask, _plan) = asked(stack, "answered").await;
            let approver = stack.client_of(Who::Approver);
            approver.respond(&ask, &json!({"ok": true})).await.unwrap();
            refused(
                approver.respond(&ask, &json!({"ok": false})).await,
                &[&ask.tool_call_id, "user:approver", "the first answer stands"],
            )
        }
        Reason::SelfApproval => {
            let (ask, _plan) = asked(stack, "own").await;
            refused(client.respond(&ask, &json!({"ok": true})).await, &["user:runner", "someone else"])
        }
        Reason::Canceled => {
            let (_ask, _plan) = asked(stack, "canceled").await;
            let receipt = client.cancel("canceled", "enough of it").await.unwrap();
            ended(receipt.run.unwrap(), &["user:runner", "enough of it"])
        }
        Reason::NotPausable => {
            let plan = client.put_plan(&Plan::work(&hash)).await.unwrap();
            client.run("over", &plan, &nothing()).await.unwrap();
            refused(client.pause("over").await, &["has ended"])
        }
        other => panic!("{other:?} is not a run's"),
    }
}

async fn asked(stack: &Stack, run_id: &str) -> (proto::runner::v1::Ask, String) {
    let client = stack.client();
    let plan = client.put_work(&Definition::client("work")).await.unwrap();
    client.run(run_id, &plan, &nothing()).await.unwrap();
    (client.asks(run_id).await.unwrap().remove(0), plan)
}

async fn dangling() -> Raised {
    let builder = Stack::builder().unwrap();
    let tool = ShellTool::write(builder.directory(), "tool.sh", "while [ -e \"$0\" ]; do sleep 0.05; done").unwrap();
    let command = tool.command();
    let mut stack = builder.runner(|flags| flags.tool_cmd(&command)).start().await.unwrap();
    let plan = stack.client().put_work(&Definition::tool("work")).await.unwrap();
    let options = RunOptions { on_dangling: OnDangling::Fail.into(), ..Default::default() };
    let start = StartRunRequest { options: Some(options), ..request("r1", &plan, &nothing()) };
    stack.client().start_with(start).await.unwrap();
    while tool.calls().is_empty() {
        tokio::time::sleep(POLL).await;
    }
    stack.runner.process().kill().unwrap();
    stack.runner.restart().await.unwrap();
    ended(stack.client().wait("r1").await.unwrap(), &["work", "on_dangling"])
}
