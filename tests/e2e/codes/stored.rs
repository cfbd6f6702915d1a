//! Codes of what lies in the store: changed behind the runner's back, or written under another model or by another release.

use e2e::{
    document::{Definition, Plan},
    flags::Flags,
    stack::{Stack, Who},
    stored::{Stored, StoredRun},
};
use proto::{
    fault::Reason,
    runner::v1::{Ask, RunStatus},
};
use serde_json::json;

use super::{Raised, nothing, refused};

/// What is done to the run while nobody drives it.
type Change = Box<dyn Fn(&StoredRun<'_>) -> anyhow::Result<()>>;

pub async fn raise(reason: Reason) -> Raised {
    match reason {
        Reason::ReplayDivergence => divergence().await,
        Reason::ManifestMismatch => {
            let change: Change = Box::new(|run| run.change_text(0, r#"{"amount":7}"#, r#"{"amount":9}"#));
            stopped(|_| change, |flags| flags).await.said(&["event 0", "r1", "the input is not the one"]).await
        }
        Reason::EngineChanged => {
            let forge = |manifest: String| -> Change {
                let later = manifest.replace("\"engine_epoch\":1", "\"engine_epoch\":9");
                Box::new(move |run| run.change_text(0, &manifest, &later))
            };
            stopped(forge, |flags| flags).await.said(&["engine epoch 9", "this runner has 1"]).await
        }
        Reason::ModelChanged => {
            let other = |flags: Flags| model(flags, "large-2");
            stopped(|_| Box::new(|_| Ok(())), other).await.said(&["small-1", "large-2", "--model small-1"]).await
        }
        other => panic!("{other:?} is not met in the store"),
    }
}

/// A finished run with one event changed: VerifyRun answers OK, with a report that says so.
async fn divergence() -> Raised {
    let mut stack = Stack::builder().unwrap().runner(|flags| flags.tool_cmd("cat")).start().await.unwrap();
    let plan = stack.client().put_work(&Definition::tool("work")).await.unwrap();
    stack.client().run("r1", &plan, &nothing()).await.unwrap();
    stack.runner.process().kill().unwrap();
    let store = Stored::open(&stack.data()).unwrap();
    store.run("r1").unwrap().change_record(1, "\"at_ms\":1", "\"at_ms\":2").unwrap();
    store.close().unwrap();
    stack.runner.restart().await.unwrap();
    let report = stack.client().verify("r1").await.expect("a report is no refusal");
    assert_eq!((report.clean, report.first_bad_sequence), (false, Some(2)));
    Raised::Reported(report.divergence, vec!["event 2".to_owned(), "hash chain is broken".to_owned()])
}

fn model(flags: Flags, name: &str) -> Flags {
    flags.value("--model-url", "http://127.0.0.1:9/v1/chat/completions").value("--model", name)
}

/// A run that cannot be driven on.
struct Stopped {
    stack: Stack,
    ask: Ask,
}

/// A run that waits for a person, before a model would be asked; its runner is stopped, the store changed, and a runner with
/// other flags started.
async fn stopped(forge: impl FnOnce(String) -> Change, change: impl FnOnce(Flags) -> Flags) -> Stopped {
    let settings = "[policy]\nallow_hosts = [\"http://127.0.0.1:9\"]\nallow_private = [\"127.0.0.0/8\"]\n\
                    [grants.model]\nmethods = [\"POST\"]\nhosts = [\"http://127.0.0.1:9\"]\n";
    let builder = Stack::builder().unwrap().broker(settings, &[]).unwrap();
    let mut stack = builder.start().await.unwrap();
    // The flags of the model come last, so that they can be taken away again.
    let bare = stack.runner.flags.clone();
    stack.runner.flags = model(bare.clone(), "small-1");
    stack.runner.restart().await.unwrap();
    let client = stack.client();
    let approve = client.put_definition(&Definition::client("approve")).await.unwrap();
    let plan = Plan::new().node("approve", &approve).unbound("think").edge("approve", "think");
    let plan = client.put_plan(&plan).await.unwrap();
    client.run("r1", &plan, &json!({"amount": 7})).await.unwrap();
    let ask = client.asks("r1").await.unwrap().remove(0);
    let manifest = client.manifest("r1").await.unwrap().manifest_json;
    stack.runner.process().kill().unwrap();
    let store = Stored::open(&stack.data()).unwrap();
    forge(manifest)(&store.run("r1").unwrap()).unwrap();
    store.close().unwrap();
    let same = model(bare.clone(), "small-1");
    let changed = change(bare);
    let has_model = changed.arguments.iter().any(|argument| argument == "--model");
    stack.runner.flags = if has_model { changed } else { same };
    stack.runner.restart().await.unwrap();
    Stopped { stack, ask }
}

impl Stopped {
    /// Whoever looks at the run or steers it is told the same code.
    async fn said(&self, parts: &[&str]) -> Raised {
        let client = self.stack.client();
        let run = client.get("r1").await.unwrap();
        assert_eq!(run.status(), RunStatus::Quarantined);
        assert!(parts.iter().all(|part| run.reason.contains(part)), "{}", run.reason);
        let approver = self.stack.client_of(Who::Approver);
        let Raised::Refused(answered, _) = refused(approver.respond(&self.ask, &json!({"ok": true})).await, &[]) else {
            panic!("a refusal")
        };
        let resumed = refused(client.resume("r1").await, parts);
        let Raised::Refused(refusal, _) = &resumed else { panic!("a refusal") };
        assert_eq!((&answered.reason, &answered.text), (&refusal.reason, &refusal.text));
        resumed
    }
}
