//! Guests beside each other: one that never ends is stopped at its own time, and its neighbour is not touched. A pure module
//! that asks for the outbound call has no chance.

use e2e::{document::Definition, guests, stack::Stack};
use proto::runner::v1::{RunStatus, StartRunRequest};
use serde_json::json;

use super::{ended_once, policy};

#[tokio::test]
async fn a_guest_that_loops_is_stopped_at_its_deadline_and_its_neighbour_computes_on() {
    let (looping, summing) = (guests::spin(), guests::sum());
    let builder = Stack::builder().unwrap().pin(&looping).pin(&summing).sandbox();
    let stack = builder.start().await.unwrap();
    let client = stack.client();
    let (loops, sums) = (client.put_blob(&looping).await.unwrap(), client.put_blob(&summing).await.unwrap());
    let limits = json!({"fuel": 100_000_000_000_u64});
    let loops = Definition::pure("work", &loops).with("runtime_limits", limits);
    let loops = client.put_work(&loops).await.unwrap();
    let sums = client.put_work(&Definition::pure("work", &sums)).await.unwrap();
    let options = policy(|policy| policy.timeout = Some(prost_types::Duration { seconds: 3, nanos: 0 }));
    let start = e2e::client::request("loops", &loops, &json!({}));
    client.start_with(StartRunRequest { options: Some(options), ..start }).await.unwrap();
    stack.running_guests(1).await.unwrap();
    for number in 0..5 {
        let run_id = format!("sums-{number}");
        let run = client.run(&run_id, &sums, &json!({"lines": [{"cents": 40}, {"cents": 2}]})).await.unwrap();
        assert_eq!(run.status(), RunStatus::Completed, "{}", run.reason);
        assert!(run.output_json.contains("\"total_cents\":42"), "{}", run.output_json);
    }
    let run = client.wait("loops").await.unwrap();
    assert_eq!(run.status(), RunStatus::Failed);
    assert_eq!(client.step_actions(&loops).await.unwrap()[0].failure_cause, "timeout");
    stack.running_guests(0).await.unwrap();
    ended_once(&client, "loops").await;
}

#[tokio::test]
async fn a_pure_module_that_imports_the_outbound_call_never_runs_and_the_import_is_named() {
    let module = guests::fetch(&json!({"url": "http://127.0.0.1:9/"}));
    let stack = Stack::builder().unwrap().pin(&module).sandbox().start().await.unwrap();
    let client = stack.client();
    let uri = client.put_blob(&module).await.unwrap();
    let plan = client.put_work(&Definition::pure("work", &uri)).await.unwrap();
    let said = match client.run("r1", &plan, &json!({})).await {
        // Refused at the start, or by whoever links it: no instruction of it was executed in either case.
        Err(status) => status.message().to_owned(),
        Ok(run) => {
            assert_eq!(run.status(), RunStatus::Failed, "{}", run.reason);
            assert_eq!(run.spent.unwrap().fuel, 0, "not an instruction of it was executed");
            ended_once(&client, "r1").await;
            run.reason
        }
    };
    assert!(said.contains("areev") && said.contains("fetch"), "{said}");
}
