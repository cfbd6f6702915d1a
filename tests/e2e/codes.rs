//! Every stable code of the registry is raised: its gRPC status, its reason, domain and metadata, and a text that begins with
//! it and names what is wrong. A code that nothing here raises fails the test.

mod broker;
mod runs;
mod starts;
mod stored;

use e2e::{refusal::Refusal, stack::Stack};
use proto::{fault::Reason, runner::v1::Run};
use serde_json::json;

/// How a code reaches somebody.
enum Raised {
    /// A call was refused with it; parts of the text.
    Refused(Refusal, Vec<String>),
    /// A run ended with it: calls answer with the run, whose reason begins with the code; parts of the text.
    Ended(Box<Run>, Vec<String>),
    /// A call answers OK, and its report begins with the code; parts of the text.
    Reported(String, Vec<String>),
    /// No caller can bring it about: the test that does, and asserts the same, by file and name.
    Inside(&'static str, &'static str),
}

/// A stack on which most codes can be raised.
async fn stack() -> Stack {
    let builder = Stack::builder().unwrap().sandbox().broker(broker::SETTINGS, &[]).unwrap();
    builder.runner(|flags| flags.tool_cmd("cat")).start().await.unwrap()
}

#[tokio::test]
async fn every_code_of_the_registry_is_raised_with_its_status_reason_domain_and_text() {
    let stack = stack().await;
    let mut raised = 0;
    for reason in Reason::all().filter(|reason| reason.code().is_some()) {
        let code = reason.code().unwrap();
        match raise(reason, &stack).await {
            Raised::Refused(refusal, parts) => {
                assert_eq!((refusal.grpc, refusal.reason.as_str()), (reason.grpc(), reason.name()), "{refusal:?}");
                let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
                // The code begins the text and stands in the metadata.
                refusal.says(code, &parts);
                let domain = domain_of(reason);
                assert_eq!(refusal.domain, domain, "{refusal:?}");
            }
            Raised::Ended(run, parts) => {
                assert!(run.reason.starts_with(&format!("{code}: ")), "{}", run.reason);
                for part in parts {
                    assert!(run.reason.contains(&part), "{part:?} is not in {:?}", run.reason);
                }
            }
            Raised::Reported(text, parts) => {
                assert!(text.starts_with(&format!("{code}: ")), "{text}");
                for part in parts {
                    assert!(text.contains(&part), "{part:?} is not in {text:?}");
                }
            }
            Raised::Inside(file, test) => {
                let text = std::fs::read_to_string(e2e::binaries::workspace().join(file)).unwrap();
                assert!(text.contains(&format!("fn {test}(")), "{file} has no test {test} for {reason:?}");
            }
        }
        raised += 1;
    }
    assert!(raised > 25, "{raised} codes");
}

/// One raiser a reason; which ones there are is the registry's to say.
async fn raise(reason: Reason, stack: &Stack) -> Raised {
    match reason {
        Reason::UnboundedCycle
        | Reason::UnreachableNodes
        | Reason::Unresolved
        | Reason::BadCondition
        | Reason::NoModel
        | Reason::NotPermitted
        | Reason::TooLarge
        | Reason::RunExists
        | Reason::ExecutorRefused
        | Reason::BadPlan
        | Reason::BadRunId
        | Reason::TooManyRuns
        | Reason::StorageUnavailable => starts::raise(reason, stack).await,
        Reason::Stalled
        | Reason::BudgetExhausted
        | Reason::DanglingIntent
        | Reason::AskNotOpen
        | Reason::SelfApproval
        | Reason::NotPausable
        | Reason::Canceled => runs::raise(reason, stack).await,
        Reason::EgressRefused
        | Reason::TokenRefused
        | Reason::NoGrant
        | Reason::UpstreamFailed
        | Reason::ModuleNotFound => broker::raise(reason, stack).await,
        Reason::ReplayDivergence | Reason::ManifestMismatch | Reason::EngineChanged | Reason::ModelChanged => {
            stored::raise(reason).await
        }
        // It needs a second writer on the same store, which a service's own lock keeps away.
        Reason::LeaseLost => Raised::Inside(
            "runner-svc/tests/it/lease_lost.rs",
            "a_former_driver_writes_nothing_and_whoever_steers_the_run_is_told_run_e021",
        ),
        other => panic!("nothing raises {other:?}: add it here"),
    }
}

fn domain_of(reason: Reason) -> &'static str {
    match reason {
        Reason::EgressRefused | Reason::TokenRefused | Reason::NoGrant | Reason::UpstreamFailed => "areev.broker",
        Reason::ModuleNotFound => "areev.sandbox",
        _ => "areev.runner",
    }
}

fn refused<T: std::fmt::Debug>(answer: Result<T, tonic::Status>, parts: &[&str]) -> Raised {
    Raised::Refused(Refusal::expected(answer), parts.iter().map(|part| (*part).to_owned()).collect())
}

fn ended(run: Run, parts: &[&str]) -> Raised {
    Raised::Ended(Box::new(run), parts.iter().map(|part| (*part).to_owned()).collect())
}

fn nothing() -> serde_json::Value {
    json!({})
}
