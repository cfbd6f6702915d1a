//! Case T3 of a body on its way: what is revoked is sent no further.

use std::{
    io::Read as _,
    net::TcpListener,
    time::{Duration, Instant},
};

use broker_svc::{
    broker::{CallBounds, Request},
    refusal::Why,
    token::Ceilings,
};

use crate::rig::{Rig, get, open, why};

const PATIENCE: Duration = Duration::from_secs(30);
/// What is sent: more than systems keep on the way.
const LARGE_BYTES: usize = 24 * 1024 * 1024;
/// What the upstream's system may keep of what is not read yet.
const RECEIVED_BYTES: usize = 64 * 1024;

#[tokio::test(flavor = "multi_thread")]
async fn t3_a_body_that_is_on_its_way_is_sent_no_further_once_its_token_is_revoked() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    rustix::net::sockopt::set_socket_recv_buffer_size(&listener, RECEIVED_BYTES).unwrap();
    let origin = format!("http://{}", listener.local_addr().unwrap());
    let (begun, mut begins) = tokio::sync::mpsc::unbounded_channel();
    let (revoke, revoked) = std::sync::mpsc::channel::<()>();
    let upstream = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut piece = vec![0; 64 * 1024];
        let mut read = stream.read(&mut piece).unwrap();
        begun.send(()).unwrap();
        revoked.recv().unwrap();
        while let Ok(more @ 1..) = stream.read(&mut piece) {
            read += more;
        }
        read
    });
    let bounds = CallBounds { body_bytes_in_flight: 2 * LARGE_BYTES as u64, ..CallBounds::default() };
    let rig = Rig::bounded(&open(&origin), bounds);
    let free = rig.broker.free_bytes();
    let ceilings = Ceilings { max_request_bytes: Ceilings::MAX.max_request_bytes, ..Ceilings::default() };
    let token = rig.token_of(None, ceilings, Duration::from_secs(60));
    let body = vec![b'x'; LARGE_BYTES].into();
    let request = Request { method: "PUT".into(), body, ..get(&origin) };
    let revoking = async {
        begins.recv().await.unwrap();
        assert_eq!(rig.broker.tokens.revoke_run("run-1"), 1);
    };
    let (outcome, ()) = tokio::join!(rig.call_with(&token, request), revoking);
    assert_eq!(why(outcome), Why::CallCut);
    revoke.send(()).unwrap();
    let read = tokio::task::spawn_blocking(|| upstream.join().unwrap()).await.unwrap();
    assert!(read < LARGE_BYTES / 2, "{read} of {LARGE_BYTES} bytes were sent");
    let begun = Instant::now();
    while rig.broker.free_bytes() < free {
        assert!(begun.elapsed() < PATIENCE, "the room is never given back");
        tokio::task::yield_now().await;
    }
}
