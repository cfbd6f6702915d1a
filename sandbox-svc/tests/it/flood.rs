//! A flood of large calls: what does not fit is refused before its bytes are taken, and memory stays bounded.

use std::{
    pin::Pin,
    task::{Context, Poll},
};

use bytes::Bytes;
use http_body::Frame;
use prost::Message as _;
use proto::{
    dial::dial,
    sandbox::v1::{ExecuteRequest, Runtime, Start, execute_request::Message},
};
use sandbox_svc::api::intake::INTAKE_BYTES_MAX;
use tonic::{
    Code, Status,
    body::Body,
    codegen::{Service, http},
    transport::Channel,
};

use crate::{
    guests,
    process::{Process, SOCKET},
    rig::{assert_output, fuel, start},
};

const CALLERS: usize = 200;
/// Nearly the largest message.
const INPUT_BYTES: usize = 8 << 20;
const SLOTS: usize = 2;
const QUEUE: usize = 2;
/// What a message costs while it is read and its call is let in: its bytes, the text in them, and the text made compact.
const COPIES: u64 = 3;
/// What the service takes beside: threads, fibers, the connections' windows, the allocator's spare room.
const OVERHEAD_BYTES: u64 = 96 << 20;

/// One message that all callers share.
struct Whole(Option<Bytes>);

impl http_body::Body for Whole {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        Poll::Ready(self.0.take().map(|bytes| Ok(Frame::data(bytes))))
    }
}

fn framed(start: Start) -> Bytes {
    let message = ExecuteRequest { message: Some(Message::Start(start)) }.encode_to_vec();
    let length = u32::try_from(message.len()).unwrap().to_be_bytes();
    Bytes::from([&[0][..], &length, &message].concat())
}

/// Begins a call. What it is answered ends it when it is dropped.
async fn call(mut channel: Channel, message: Bytes) -> http::Response<Body> {
    let request = http::Request::post("http://sandbox/areev.sandbox.v1.SandboxService/Execute")
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .body(Body::new(Whole(Some(message))))
        .unwrap();
    std::future::poll_fn(|context| channel.poll_ready(context)).await.unwrap();
    channel.call(request).await.unwrap()
}

/// What a call was told at once, and whether it may come again: no code for one that was let in.
fn told(reply: &http::Response<Body>) -> (Option<Code>, bool) {
    let status = Status::from_header_map(reply.headers());
    status.map_or((None, false), |status| (Some(status.code()), proto::fault::retry_after_of(&status).is_some()))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_flood_of_large_calls_is_refused_with_a_hint_and_memory_stays_bounded() {
    let directory = tempfile::tempdir().unwrap();
    let arguments = ["--max-concurrent", &SLOTS.to_string(), "--queue", &QUEUE.to_string()];
    let process = Process::start(directory.path(), &arguments).await;
    // With room for the input.
    let endless = guests::endless().replace("\"memory\") 4", "\"memory\") 200");
    let endless = process.caller.put(&wat::parse_str(endless).unwrap()).await;
    let echo = process.caller.put(&wat::parse_str(guests::echo()).unwrap()).await;
    for uri in [&endless, &echo] {
        process.caller.execute(Start { limits: fuel(1), ..start(uri, Runtime::Wasm32Areev, "1") }).await.unwrap();
    }
    let before = process.resident().0;
    let input = format!("\"{}\"", "x".repeat(INPUT_BYTES - 2));
    let message = framed(Start { limits: fuel(u64::MAX), ..start(&endless, Runtime::Wasm32Areev, &input) });
    // Some connections, as some runners would have.
    let socket = format!("unix:{}", directory.path().join(SOCKET).display());
    let channels: Vec<_> = (0..4).map(|_| dial(&socket, None).unwrap()).collect();
    let mut calls = tokio::task::JoinSet::new();
    for number in 0..CALLERS {
        calls.spawn(call(channels[number % channels.len()].clone(), message.clone()));
    }
    let replies = calls.join_all().await;
    let answers: Vec<_> = replies.iter().map(told).collect();
    let refused = answers.iter().filter(|(code, hint)| (*code, *hint) == (Some(Code::ResourceExhausted), true)).count();
    let let_in = answers.iter().filter(|(code, _)| code.is_none()).count();
    assert_eq!(refused + let_in, CALLERS, "{answers:?}");
    assert!(refused >= CALLERS / 2, "{answers:?}");
    let places = (SLOTS + QUEUE) as u64;
    let bound = COPIES * (INTAKE_BYTES_MAX as u64 + places * INPUT_BYTES as u64) + OVERHEAD_BYTES;
    let peak = process.resident().1;
    assert!(peak <= before + bound, "{before} before, {peak} at its highest, over {bound} more");
    // Nobody who comes later is kept out.
    drop((replies, channels));
    let end = std::time::Instant::now() + crate::rig::PATIENCE;
    while process.describe().await.running > 0 {
        assert!(std::time::Instant::now() < end, "the flood still runs");
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    for _ in 0..20 {
        let input = &input[input.len() - 100_000..];
        let input = format!("\"{input}");
        let (outcome, _) = process.caller.execute(start(&echo, Runtime::Wasm32Areev, &input)).await.unwrap();
        assert_output(&outcome, &input);
    }
}
