//! Codes of outbound calls, and of the sandbox that does not hold a module.

use std::time::{Duration, SystemTime};

use e2e::stack::Stack;
use proto::{
    broker::v1::{FetchRequest, MintTokenRequest},
    fault::Reason,
    sandbox::v1::{ExecuteRequest, Runtime, Start, execute_request::Message},
};

use super::{Raised, refused};

/// `work` may go to a port where nobody listens, and nowhere else.
pub const SETTINGS: &str = "[policy]\nallow_hosts = [\"http://127.0.0.1:9\"]\nallow_private = [\"127.0.0.0/8\"]\n\
    [grants.work]\nmethods = [\"GET\"]\nhosts = [\"http://127.0.0.1:9\"]\n";

pub async fn raise(reason: Reason, stack: &Stack) -> Raised {
    let mut broker = stack.broker_client();
    let fetch = |token: String, url: &str| FetchRequest { token, url: url.to_owned(), ..Default::default() };
    match reason {
        Reason::NoGrant => refused(broker.mint_token(minting("stranger")).await, &["stranger"]),
        Reason::TokenRefused => {
            refused(broker.fetch(fetch("no-token".to_owned(), "http://127.0.0.1:9/")).await, &["token"])
        }
        Reason::EgressRefused => {
            let token = broker.mint_token(minting("work")).await.unwrap().into_inner().token;
            refused(broker.fetch(fetch(token, "http://127.0.0.2:9/")).await, &["127.0.0.2"])
        }
        Reason::UpstreamFailed => {
            let token = broker.mint_token(minting("work")).await.unwrap().into_inner().token;
            refused(broker.fetch(fetch(token, "http://127.0.0.1:9/")).await, &["127.0.0.1"])
        }
        Reason::ModuleNotFound => {
            let uri = format!("cas://sha256:{}", "cd".repeat(32));
            let start = Start {
                module_digest: uri.clone(),
                runtime: Runtime::Wasm32Areev.into(),
                input_json: "null".to_owned(),
                ..Default::default()
            };
            let start = ExecuteRequest { message: Some(Message::Start(start)) };
            let answer = stack.sandbox_client().execute(tokio_stream::iter([start])).await;
            refused(answer.map(|_stream| "a stream"), &[&uri])
        }
        other => panic!("{other:?} is neither the broker's nor the sandbox's"),
    }
}

fn minting(tool: &str) -> MintTokenRequest {
    MintTokenRequest {
        run_id: "r1".to_owned(),
        namespace: "ops".to_owned(),
        node: "work".to_owned(),
        attempt: 1,
        tool_name: tool.to_owned(),
        definition_hash: "ab".repeat(32),
        principal: "user:runner".to_owned(),
        idempotency_key: "cd".repeat(32),
        deadline: Some((SystemTime::now() + Duration::from_secs(60)).into()),
        ..Default::default()
    }
}
