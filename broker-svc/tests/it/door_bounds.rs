//! Callers that hold the HTTP door: without a token, without reading, without an end.

use std::{sync::Arc, time::Duration};

use broker_svc::{
    broker::CallBounds,
    egress_http::{DoorBounds, serve},
    token::Ceilings,
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
};
use tokio_util::sync::CancellationToken;

use crate::{
    doors::take_records,
    rig::{Rig, open},
    upstream::{Upstream, ok},
};

const PATIENCE: Duration = Duration::from_secs(60);
/// A bound that no test reaches.
const FAR: Duration = Duration::from_secs(3600);
const SOON: Duration = Duration::from_millis(300);

/// A door whose every bound is far, so that a test shows one of them.
fn far() -> DoorBounds {
    let (connections, connections_of_one) = (64, 64);
    let (head, body, unread, unknown, life, ending) = (FAR, FAR, FAR, FAR, FAR, FAR);
    DoorBounds { connections, connections_of_one, head, body, unread, unknown, life, ending }
}

struct Door {
    address: String,
    drain: CancellationToken,
    served: tokio::task::JoinHandle<()>,
}

impl Door {
    async fn open(rig: &Rig, bounds: DoorBounds) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (address, drain) = (listener.local_addr().unwrap().to_string(), CancellationToken::new());
        let served = tokio::spawn(serve(listener, Arc::clone(&rig.broker), bounds, drain.clone()));
        Self { address, drain, served }
    }

    async fn dial(&self) -> TcpStream {
        TcpStream::connect(&self.address).await.unwrap()
    }

    /// Drains; every connection has to end of itself.
    async fn close(self) {
        self.drain.cancel();
        tokio::time::timeout(PATIENCE, self.served).await.unwrap().unwrap();
    }
}

/// Writes requests without a token and reads nothing, until the door takes no more and lets go.
async fn pipeline(mut stream: TcpStream) {
    let requests = "GET / HTTP/1.1\r\nHost: b\r\n\r\n".repeat(1000);
    while stream.write_all(requests.as_bytes()).await.is_ok() {}
}

async fn ends(mut stream: TcpStream) {
    let mut rest = Vec::new();
    // A reset is an end too.
    let _end = tokio::time::timeout(PATIENCE, stream.read_to_end(&mut rest)).await.expect("the door lets go");
}

fn post(token: &str, bytes: usize, sent: &str) -> String {
    format!("POST / HTTP/1.1\r\nHost: b\r\nX-Areev-Egress-Token: {token}\r\nContent-Length: {bytes}\r\n\r\n{sent}")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_caller_that_sends_and_never_reads_is_let_go_of() {
    let rig = Rig::new("");
    let door = Door::open(&rig, DoorBounds { unread: SOON, ..far() }).await;
    tokio::time::timeout(PATIENCE, pipeline(door.dial().await)).await.expect("the door lets go");
    door.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_caller_without_a_good_token_has_a_short_life_whatever_it_does() {
    let rig = Rig::new("");
    let door = Door::open(&rig, DoorBounds { unknown: SOON, ..far() }).await;
    // One says nothing, one trickles a head, one does not read, one shows a wrong token and waits.
    let (silent, mut slow, deaf, mut wrong) = tokio::join!(door.dial(), door.dial(), door.dial(), door.dial());
    slow.write_all(b"POST / HTTP/1.1\r\nHo").await.unwrap();
    wrong.write_all(post("nothing", 2, "{}").as_bytes()).await.unwrap();
    tokio::join!(ends(silent), ends(slow), ends(wrong), async {
        tokio::time::timeout(PATIENCE, pipeline(deaf)).await.expect("the door lets go");
    });
    door.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_that_has_lived_its_life_and_a_drained_one_end_although_nobody_reads() {
    let rig = Rig::new("");
    let door = Door::open(&rig, DoorBounds { life: SOON, ending: SOON, ..far() }).await;
    tokio::time::timeout(PATIENCE, pipeline(door.dial().await)).await.expect("its life is over");
    door.close().await;
    let door = Door::open(&rig, DoorBounds { ending: SOON, ..far() }).await;
    let deaf = tokio::spawn(pipeline(door.dial().await));
    door.close().await;
    tokio::time::timeout(PATIENCE, deaf).await.unwrap().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn one_address_holds_its_share_of_the_door_and_another_still_comes_in() {
    let rig = Rig::new("");
    let door = Door::open(&rig, DoorBounds { connections_of_one: 2, ..far() }).await;
    let _held = [door.dial().await, door.dial().await];
    let mut third = door.dial().await;
    let mut said = String::new();
    tokio::time::timeout(PATIENCE, third.read_to_string(&mut said)).await.unwrap().unwrap();
    let (head, body) = said.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("HTTP/1.1 429 ") && head.contains(&format!("content-length: {}", body.len())), "{said}");
    assert_eq!(serde_json::from_str::<serde_json::Value>(body).unwrap()["code"], "RUN-E022");
    // Another address of this host.
    let socket = tokio::net::TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.2:0".parse().unwrap()).unwrap();
    let mut other = socket.connect(door.address.parse().unwrap()).await.unwrap();
    other.write_all(post("nothing", 2, "{}").as_bytes()).await.unwrap();
    let mut first = [0; 12];
    tokio::time::timeout(PATIENCE, other.read_exact(&mut first)).await.unwrap().unwrap();
    assert_eq!(&first, b"HTTP/1.1 401");
    drop((_held, other));
    door.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn r8_documents_of_the_door_and_answers_that_nobody_reads_are_held_within_the_one_budget() {
    const BUDGET: u64 = 8 * 1024 * 1024;
    let answer = "x".repeat(1 << 20);
    let upstream = Upstream::plain(move |_, out| ok(out, &answer));
    let rig =
        Rig::bounded(&open(&upstream.http()), CallBounds { body_bytes_in_flight: BUDGET, ..CallBounds::default() });
    let taking = take_records(&rig.broker);
    let door = Door::open(&rig, far()).await;
    let token = || rig.token_of(None, Ceilings::MAX, Duration::from_secs(600));
    let free = |bytes: u64| {
        let broker = Arc::clone(&rig.broker);
        let reached = async move {
            while broker.free_bytes() > bytes {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(PATIENCE, reached)
    };
    // What is announced takes nothing; what has come does, before the document is whole.
    let mut unfinished = door.dial().await;
    unfinished.write_all(post(&token(), 4 << 20, "").as_bytes()).await.unwrap();
    assert_eq!(rig.broker.free_bytes(), BUDGET);
    unfinished.write_all("y".repeat(3 << 20).as_bytes()).await.unwrap();
    free(BUDGET - (6 << 20)).await.expect("the part that came is counted");
    // Another that does not fit beside it is refused in words, while it sends.
    let mut second = door.dial().await;
    let _refused_early = second.write_all(post(&token(), 3 << 20, &"y".repeat(3 << 20)).as_bytes()).await;
    let mut first = [0; 12];
    tokio::time::timeout(PATIENCE, second.read_exact(&mut first)).await.unwrap().unwrap();
    assert_eq!(&first, b"HTTP/1.1 429");
    drop((unfinished, second));
    let all = async {
        while rig.broker.free_bytes() < BUDGET {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(PATIENCE, all).await.expect("what was held is free again");
    taking.abort();
    door.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn r8_an_answer_keeps_its_room_until_it_is_written() {
    const BUDGET: u64 = 64 * 1024 * 1024;
    // More than the sockets between take.
    let answer = "x".repeat(16 << 20);
    let upstream = Upstream::plain(move |_, out| ok(out, &answer));
    let rig =
        Rig::bounded(&open(&upstream.http()), CallBounds { body_bytes_in_flight: BUDGET, ..CallBounds::default() });
    let taking = take_records(&rig.broker);
    let door = Door::open(&rig, far()).await;
    let ceilings = Ceilings { max_response_bytes: 17 << 20, ..Ceilings::default() };
    let token = rig.token_of(None, ceilings, Duration::from_secs(600));
    let call = format!("{{\"url\":\"{}\"}}", upstream.http());
    let mut deaf = door.dial().await;
    deaf.write_all(post(&token, call.len(), &call).as_bytes()).await.unwrap();
    let mut first = [0; 12];
    tokio::time::timeout(PATIENCE, deaf.read_exact(&mut first)).await.unwrap().unwrap();
    assert_eq!(&first, b"HTTP/1.1 200");
    assert!(rig.broker.free_bytes() < BUDGET - (16 << 20), "the answer is on its way and counted");
    let mut rest = Vec::new();
    let reading = async {
        while rest.len() < 16 << 20 {
            deaf.read_buf(&mut rest).await.unwrap();
        }
        while rig.broker.free_bytes() < BUDGET {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(PATIENCE, reading).await.expect("it is free once it is read");
    drop(deaf);
    taking.abort();
    door.close().await;
}
