//! Artifacts whose run is canceled while their bytes are on the way: both ends let go, and nothing of them is kept.

use std::{fs, sync::Arc, time::Instant};

use content_digest::Digest;
use e2e::{
    document::{Definition, Plan},
    guests,
    process::{PATIENCE, POLL},
    stack::Stack,
};
use proto::{
    broker::v1::{CallRecord, ListCallsRequest},
    runner::v1::{CancelResult, RunStatus},
};
use serde_json::json;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpSocket, TcpStream},
    sync::Notify,
};

use crate::artifacts::{binary, capabilities, settings};

/// What is moved.
const LARGE_BYTES: usize = 20 * 1024 * 1024;
/// What comes of it before it stops.
const SOME_BYTES: usize = 1024 * 1024;

/// What the system may keep of what is not read yet.
const RECEIVED_BYTES: u32 = 64 * 1024;

/// An upstream that stops in the middle, says so, and says when its other end has let go.
struct Stalling {
    origin: String,
    stopped: Arc<Notify>,
    canceled: Arc<Notify>,
    /// Bytes that it was sent.
    ended: tokio::task::JoinHandle<usize>,
}

/// Answers with some of the bytes that it announces, or takes some of those that it is sent.
async fn stalling(gives: bool) -> Stalling {
    let socket = TcpSocket::new_v4().unwrap();
    // The system keeps little of what is not read: it would take all of it.
    socket.set_recv_buffer_size(RECEIVED_BYTES).unwrap();
    socket.bind(([127, 0, 0, 1], 0).into()).unwrap();
    let listener = socket.listen(1).unwrap();
    let origin = format!("http://{}", listener.local_addr().unwrap());
    let (stopped, canceled) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let (said, heard) = (Arc::clone(&stopped), Arc::clone(&canceled));
    let ended = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut read = read_some(&mut stream, if gives { 1 } else { SOME_BYTES }).await;
        if gives {
            let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {LARGE_BYTES}\r\n\r\n");
            stream.write_all(head.as_bytes()).await.unwrap();
            stream.write_all(&binary(SOME_BYTES)).await.unwrap();
        }
        said.notify_one();
        if !gives {
            // Until then it takes nothing.
            heard.notified().await;
        }
        // What lies on the way may still come; then the end, or a reset: nobody waits for the rest, or sends it.
        let mut piece = vec![0; 64 * 1024];
        while let Ok(more @ 1..) = stream.read(&mut piece).await {
            read += more;
        }
        read
    });
    Stalling { origin, stopped, canceled, ended }
}

async fn read_some(stream: &mut TcpStream, least: usize) -> usize {
    let (mut read, mut piece) = (0, vec![0; 64 * 1024]);
    while read < least {
        read += stream.read(&mut piece).await.unwrap();
    }
    read
}

/// A run of one node that moves an artifact until its upstream stops, and what was recorded of its call after the cancel.
async fn canceled_in_the_middle(gives: bool) -> (Stack, CallRecord) {
    let upstream = stalling(gives).await;
    let origin = &upstream.origin;
    let (name, method) = if gives { ("down", "GET") } else { ("up", "PUT") };
    let module = if gives {
        guests::fetch(&json!({"url": format!("{origin}/down"), "response_mode": "artifact"}))
    } else {
        guests::give(&json!({"url": format!("{origin}/up"), "method": "PUT"}))
    };
    let builder = Stack::builder().unwrap().pin(&module).sandbox();
    let stack = builder.broker(&settings(origin), &[]).unwrap().start().await.unwrap();
    let client = stack.client();
    let blob = if gives { String::new() } else { client.put_blob(&binary(LARGE_BYTES)).await.unwrap() };
    let uri = client.put_blob(&module).await.unwrap();
    let definition = Definition::io(name, &uri, capabilities(origin, method, !gives));
    let definition = client.put_definition(&definition).await.unwrap();
    let plan = client.put_plan(&Plan::work(&definition)).await.unwrap();
    client.start("r1", &plan, &json!({"blob": blob})).await.unwrap();
    tokio::time::timeout(PATIENCE, upstream.stopped.notified()).await.expect("the transfer begins");

    assert_eq!(client.cancel("r1", "enough").await.unwrap().result(), CancelResult::Canceled);
    assert_eq!(client.wait("r1").await.unwrap().status(), RunStatus::Canceled);
    upstream.canceled.notify_one();
    let sent = tokio::time::timeout(PATIENCE, upstream.ended).await.expect("the connection is closed").unwrap();
    assert!(sent < LARGE_BYTES / 2, "{sent} of {LARGE_BYTES} bytes were sent");
    let calls = ListCallsRequest { run_id: "r1".into(), ..ListCallsRequest::default() };
    let deadline = Instant::now() + PATIENCE;
    let record = loop {
        let calls = stack.broker_client().list_calls(calls.clone()).await.unwrap().into_inner().calls;
        match calls.into_iter().next() {
            Some(record) => break record,
            None => assert!(Instant::now() < deadline, "the call is never recorded"),
        }
        tokio::time::sleep(POLL).await;
    };
    assert!(client.verify("r1").await.unwrap().clean);
    (stack, record)
}

#[tokio::test]
async fn a_download_that_is_canceled_in_the_middle_is_let_go_of_and_leaves_no_blob() {
    let (stack, record) = canceled_in_the_middle(true).await;
    assert!(record.went_out && matches!(&*record.reason, "call_cut" | "caller_gone"), "{record:?}");
    assert_eq!((record.status, record.response_bytes), (0, 0), "no half of an answer is one");
    assert_eq!(fs::read_dir(stack.data().join("blobs/tmp")).unwrap().count(), 0);
    let (half, whole) = (Digest::of(binary(SOME_BYTES)).to_hex(), Digest::of(binary(LARGE_BYTES)).to_hex());
    for hex in [half, whole] {
        assert!(!stack.data().join("blobs").join(&hex[..2]).join(&hex[2..]).exists(), "a part was stored");
    }
}

#[tokio::test]
async fn an_upload_that_is_canceled_in_the_middle_is_let_go_of_and_recorded_as_one_that_went_out() {
    let (_stack, record) = canceled_in_the_middle(false).await;
    assert!(record.went_out && matches!(&*record.reason, "call_cut" | "caller_gone"), "{record:?}");
    assert_eq!((record.method.as_str(), record.request_bytes), ("PUT", LARGE_BYTES as u64));
    assert_eq!(record.request_digest, Digest::of(binary(LARGE_BYTES)).to_hex());
}
