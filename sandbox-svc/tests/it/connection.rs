//! The connection under the calls: many of them, ended and abandoned in every order, leave it open for the others.

use std::time::Duration;

use proto::sandbox::v1::{Cancel, ExecuteRequest, OutcomeKind, Runtime, Start, execute_request::Message};

use crate::{
    guests,
    rig::{Rig, assert_failed, assert_output, fuel, start, until},
};

const PURE: Runtime = Runtime::Wasm32Areev;
/// How long a caller has to end its stream after the outcome; the service gives it two seconds.
const LINGERS_AT_LEAST: Duration = Duration::from_secs(1);
/// Callers at once: what the one says last crosses what the service says last to the others.
const CALLERS: usize = 128;
/// Calls of each. Together more than the frames for streams that it no longer knows which a transport takes, a thousand and
/// twenty-four, before it calls its peer hostile and closes the connection with every call on it.
const CALLS: usize = 20;

#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_lasts_outlives_many_short_ones_on_its_connection() {
    let rig = Rig::new().await;
    let endless = rig.put(&wat::parse_str(guests::endless()).unwrap()).await;
    let mut lasting = rig.begin(Start { limits: fuel(u64::MAX), ..start(&endless, PURE, "null") }).await.unwrap();
    until("it runs", || rig.sandbox.admission.running() == 1).await;
    // Each half-closes its stream only after its outcome, as the runner does.
    let uri = rig.put(&wat::parse_str(guests::echo()).unwrap()).await;
    let mut callers = tokio::task::JoinSet::new();
    for _ in 0..CALLERS {
        let (caller, uri) = (rig.caller(), uri.clone());
        callers.spawn(async move {
            for _ in 0..CALLS {
                assert_output(&caller.execute(start(&uri, PURE, "1")).await.unwrap().0, "1");
            }
        });
    }
    callers.join_all().await;
    lasting.requests.send(ExecuteRequest { message: Some(Message::Cancel(Cancel {})) }).await.unwrap();
    assert_failed(&lasting.outcome().await, OutcomeKind::Canceled, "the caller canceled");
}

#[tokio::test]
async fn a_stream_is_not_reset_before_its_caller_has_ended_it() {
    let rig = Rig::new().await;
    let uri = rig.put(&wat::parse_str(guests::echo()).unwrap()).await;
    loop {
        let mut call = rig.begin(start(&uri, PURE, "1")).await.unwrap();
        assert_output(&call.outcome().await, "1");
        let told = std::time::Instant::now();
        assert!(call.replies.message().await.unwrap().is_none(), "nothing follows an outcome");
        // What is said on one connection comes in the order in which it was said: a reset would come before this answer.
        assert_output(&rig.execute(start(&uri, PURE, "2")).await.unwrap().0, "2");
        let reset = call.requests.is_closed();
        // Who never ends its stream is waited for, but not for ever.
        if told.elapsed() < LINGERS_AT_LEAST {
            assert!(!reset, "a reset counts against its sender, and a thousand of them close the connection");
            return;
        }
    }
}
