//! The connection under the calls: many of them, ended and abandoned in every order, leave it open for the others.

use proto::sandbox::v1::{Cancel, ExecuteRequest, OutcomeKind, Runtime, Start, execute_request::Message};

use crate::{
    guests,
    rig::{Rig, assert_failed, assert_output, fuel, start, until},
};

const PURE: Runtime = Runtime::Wasm32Areev;
/// More than the resets of streams that a transport takes before it calls its peer hostile and closes the connection with
/// every call on it: a thousand and twenty-four.
const CALLS: usize = 1_500;

#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_lasts_outlives_many_short_ones_on_its_connection() {
    let rig = Rig::new().await;
    let endless = rig.put(&wat::parse_str(guests::endless()).unwrap()).await;
    let mut lasting = rig.begin(Start { limits: fuel(u64::MAX), ..start(&endless, PURE, "null") }).await.unwrap();
    until("it runs", || rig.sandbox.admission.running() == 1).await;
    // Each half-closes its stream only after its outcome, as the runner does.
    let uri = rig.put(&wat::parse_str(guests::echo()).unwrap()).await;
    let callers = (0..4).map(|_| async {
        for _ in 0..CALLS / 4 {
            assert_output(&rig.execute(start(&uri, PURE, "1")).await.unwrap().0, "1");
        }
    });
    futures::future::join_all(callers).await;
    lasting.requests.send(ExecuteRequest { message: Some(Message::Cancel(Cancel {})) }).await.unwrap();
    assert_failed(&lasting.outcome().await, OutcomeKind::Canceled, "the caller canceled");
}
