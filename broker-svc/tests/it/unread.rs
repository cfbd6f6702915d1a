//! Case R8 at the gRPC door: answers that their callers do not read are held within the one budget, and only as long as they are.

use std::time::{Duration, Instant};

use broker_svc::broker::CallBounds;
use proto::{
    broker::v1::{Ceilings, FetchRequest, FetchResponse, MintTokenRequest, broker_service_client::BrokerServiceClient},
    fault::{Reason, reason_of},
};
use tonic::{Status, Streaming, codegen::http::uri::PathAndQuery, transport::Channel};

use crate::{
    doors::{Doors, minting},
    process::Process,
    rig::{Rig, open},
    upstream::{Upstream, ok},
};

/// Longest wait for something that has to happen.
const PATIENCE: Duration = Duration::from_secs(60);
/// The budget of the program for all bodies in flight.
const BUDGET_BYTES: u64 = 256 * 1024 * 1024;
/// Bytes of one answer.
const ANSWER_BYTES: usize = 16 * 1024 * 1024;
/// Callers that do not read: together they ask for four times the budget.
const CALLERS: usize = 64;

/// Makes a call and reads nothing of its answer but the head.
async fn unread(channel: &Channel, fetch: FetchRequest) -> Result<Streaming<FetchResponse>, Status> {
    let mut client = tonic::client::Grpc::new(channel.clone()).max_decoding_message_size(2 * ANSWER_BYTES);
    client.ready().await.unwrap();
    let codec = tonic_prost::ProstCodec::<FetchRequest, FetchResponse>::default();
    let path = PathAndQuery::from_static("/areev.broker.v1.BrokerService/Fetch");
    Ok(client.server_streaming(tonic::Request::new(fetch), path, codec).await?.into_inner())
}

fn fetch(token: &str, url: String) -> FetchRequest {
    FetchRequest { token: token.to_owned(), url, ..FetchRequest::default() }
}

#[tokio::test(flavor = "multi_thread")]
async fn r8_the_program_holds_its_budget_and_little_more_of_answers_that_nobody_reads() {
    let upstream = Upstream::plain(|_, out| ok(out, &"x".repeat(ANSWER_BYTES)));
    let policy = open(&upstream.http()).replace("$a", "env:SECRET");
    let (mut process, _files) = Process::start(&policy, &[("SECRET", "canary-of-the-unread")]);
    let channel = Channel::from_shared(format!("http://{}", process.address("listening"))).unwrap();
    // One that does not read takes nothing of the connection from the others.
    let channel = channel.initial_connection_window_size(64 * 1024 * 1024).connect().await.unwrap();
    let ceilings =
        Ceilings { max_response_bytes: Some(ANSWER_BYTES as u64), max_calls: Some(1000), ..Ceilings::default() };
    let minting = MintTokenRequest { ceilings: Some(ceilings), ..minting("n") };
    let mut client = BrokerServiceClient::new(channel.clone()).max_decoding_message_size(2 * ANSWER_BYTES);
    let token = client.mint_token(minting).await.unwrap().into_inner().token;
    // What the program takes for code, connections and one answer on its way does not count.
    client.fetch(fetch(&token, upstream.http())).await.unwrap();
    let before = process.kept("status", "VmRSS:") * 1024;

    let (mut held, mut refused) = (Vec::new(), 0);
    for _ in 0..CALLERS {
        match unread(&channel, fetch(&token, upstream.http())).await {
            Ok(answer) => held.push(answer),
            Err(status) => {
                assert_eq!(reason_of(&status), Some(Reason::Busy), "{}", status.message());
                refused += 1;
            }
        }
    }
    let most = (BUDGET_BYTES / ANSWER_BYTES as u64) as usize;
    assert!((1..=most).contains(&held.len()), "{} of {CALLERS} answers are held", held.len());
    assert_eq!(held.len() + refused, CALLERS);
    // One more may be there twice, as it came and as it is written.
    let grown = (process.kept("status", "VmHWM:") * 1024).saturating_sub(before);
    assert!(grown < BUDGET_BYTES + 3 * ANSWER_BYTES as u64, "the program grew by {grown} bytes");

    // Whoever reads after all has the whole answer, and the room of those who go away is free again.
    let last = held.pop().unwrap().message().await.unwrap().unwrap();
    assert_eq!((last.status, last.body.len()), (200, ANSWER_BYTES));
    drop(held);
    let begun = Instant::now();
    while let Err(status) = client.fetch(fetch(&token, upstream.http())).await {
        assert_eq!(reason_of(&status), Some(Reason::Busy), "{}", status.message());
        assert!(begun.elapsed() < PATIENCE, "the room is never given back");
    }
    tokio::task::spawn_blocking(|| process.end()).await.unwrap();
}

#[tokio::test]
async fn r8_an_unread_answer_keeps_the_room_that_it_takes_and_not_what_it_might_have_taken() {
    // More than a caller's window lets in, so that the transport holds it.
    const BYTES: usize = 512 * 1024;
    let upstream = Upstream::plain(|_, out| ok(out, &"x".repeat(BYTES)));
    let bounds = CallBounds { body_bytes_in_flight: 1024 * 1024 + 4096, ..CallBounds::default() };
    let rig = Rig::bounded(&open(&upstream.http()), bounds);
    let doors = Doors::open(rig.broker.clone()).await;
    let channel = Channel::from_shared(format!("http://{}", doors.grpc_address())).unwrap();
    let channel = channel.initial_stream_window_size(64 * 1024).connect().await.unwrap();
    let first = unread(&channel, fetch(&rig.token(), upstream.http())).await.unwrap();
    let free = rig.broker.free_bytes();
    assert!(free < (1024 * 1024 + 4096 - BYTES) as u64, "{free} bytes are free beside an answer that is held");
    let refused = unread(&channel, fetch(&rig.token(), upstream.http())).await.unwrap_err();
    assert_eq!(reason_of(&refused), Some(Reason::Busy), "a whole answer of 1 MiB might not fit beside it");
    let small = FetchRequest { max_response_bytes: Some(1024), ..fetch(&rig.token(), upstream.http()) };
    let told = unread(&channel, small).await.unwrap_err();
    assert_eq!(reason_of(&told), Some(Reason::TooLarge), "but what fits is asked for");
    drop(first);
    let begun = Instant::now();
    while rig.broker.free_bytes() < 1024 * 1024 {
        assert!(begun.elapsed() < PATIENCE, "the room is never given back");
        tokio::task::yield_now().await;
    }
    doors.close().await;
}
