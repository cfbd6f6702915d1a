//! Cases R7 and R8 of the program's memory: what an upstream sends beyond its bound is never held.

use std::io::Write;

use proto::{
    broker::v1::{Ceilings, FetchRequest, broker_service_client::BrokerServiceClient},
    fault::{Reason, reason_of},
};

use crate::{
    doors::minting,
    process::Process,
    rig::open,
    upstream::{Upstream, ok},
};

/// Bytes that an answer may have here.
const CAP: u64 = 4 * 1024 * 1024;
/// What an upstream sends in one piece.
static PIECE: [u8; 64 * 1024] = [b'x'; 64 * 1024];

/// Sends pieces until the broker closes the connection, or for far too long.
fn flood(out: &mut dyn Write, frame: impl Fn(&mut dyn Write) -> std::io::Result<()>) -> bool {
    // 16 GiB: an upstream that nobody stops would end some day.
    let stopped = (0..16 * 16_384).any(|_| frame(out).and_then(|()| out.flush()).is_err());
    assert!(stopped, "the broker never closed the connection");
    false
}

fn chunk(out: &mut dyn Write) -> std::io::Result<()> {
    out.write_all(b"10000\r\n")?;
    out.write_all(&PIECE)?;
    out.write_all(b"\r\n")
}

type Script = fn(&mut dyn Write) -> bool;

/// What upstreams send, and what the caller is told.
const HOSTILE: [(&str, Script, Reason); 8] = [
    (
        "a length of 10 GB",
        |out| {
            out.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 10000000000\r\n\r\n").unwrap();
            flood(out, |out| out.write_all(&PIECE))
        },
        Reason::TooLarge,
    ),
    (
        "chunks without end",
        |out| {
            out.write_all(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n").unwrap();
            flood(out, chunk)
        },
        Reason::TooLarge,
    ),
    (
        "a body without length or end",
        |out| {
            out.write_all(b"HTTP/1.1 200 OK\r\n\r\n").unwrap();
            flood(out, |out| out.write_all(&PIECE))
        },
        Reason::TooLarge,
    ),
    (
        "a chunk of 10 GB",
        |out| {
            out.write_all(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2540BE400\r\n").unwrap();
            flood(out, |out| out.write_all(&PIECE))
        },
        Reason::TooLarge,
    ),
    (
        "a length that is larger than the body",
        |out| {
            out.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n").unwrap();
            out.write_all(&PIECE).unwrap();
            false
        },
        Reason::UpstreamFailed,
    ),
    (
        "gzip that grows a thousandfold",
        |out| {
            out.write_all(b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 10000000\r\n\r\n").unwrap();
            flood(out, |out| out.write_all(&PIECE))
        },
        Reason::UpstreamFailed,
    ),
    (
        "16 KiB of zstd that would be 512 MB",
        |out| {
            out.write_all(b"HTTP/1.1 200 OK\r\nContent-Encoding: zstd\r\nContent-Length: 16384\r\n\r\n").unwrap();
            out.write_all(&PIECE[..16_384]).is_ok()
        },
        Reason::UpstreamFailed,
    ),
    (
        "head lines without end",
        |out| {
            out.write_all(b"HTTP/1.1 200 OK\r\n").unwrap();
            flood(out, |out| out.write_all(b"x-line: of a head that has no end and goes on for a very long time\r\n"))
        },
        Reason::UpstreamFailed,
    ),
];

#[tokio::test(flavor = "multi_thread")]
async fn r7_whatever_an_upstream_sends_the_program_holds_less_than_twice_the_bound() {
    let mut served = Vec::new();
    for (_, script, _) in HOSTILE {
        served.push(Upstream::plain(move |_, out| script(out)));
    }
    let honest = Upstream::plain(|_, out| ok(out, "honest"));
    // The length is smaller than what follows: the answer is what the length says, and the rest is nobody's.
    let longer = Upstream::plain(|_, out| {
        out.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nshort").unwrap();
        flood(out, |out| out.write_all(&PIECE))
    });
    let all: Vec<_> = served.iter().chain([&honest, &longer]).map(Upstream::http).collect();
    let policy = open("ORIGIN").replace("\"ORIGIN\"", &format!("\"{}\"", all.join("\", \"")));
    let (mut process, _files) = Process::start(&policy.replace("$a", "env:SECRET"), &[("SECRET", "canary-of-memory")]);
    let grpc = process.address("listening");
    let mut client = BrokerServiceClient::connect(format!("http://{grpc}")).await.unwrap();
    let ceilings = Ceilings { max_response_bytes: Some(CAP), max_calls: Some(1000), ..Ceilings::default() };
    let request = proto::broker::v1::MintTokenRequest { ceilings: Some(ceilings), ..minting("n") };
    let token = client.mint_token(request).await.unwrap().into_inner().token;
    let fetch = |url: &str, max: u64| FetchRequest {
        token: token.clone(),
        url: url.to_owned(),
        credential: Some("a".into()),
        max_response_bytes: Some(max),
        ..FetchRequest::default()
    };
    // First with almost no room: what the program takes for code and connections does not count.
    let mut before = 0;
    for max in [1024, CAP] {
        before = process.kept("status", "VmHWM:") * 1024;
        for ((what, _, reason), upstream) in HOSTILE.iter().zip(&served) {
            let refused = client.fetch(fetch(&upstream.http(), max)).await.err();
            let refused = refused.unwrap_or_else(|| panic!("{what}: answered"));
            let told = reason_of(&refused).unwrap();
            // A body that breaks off is over the smaller bound before it does.
            assert!(told == *reason || (max < CAP && told == Reason::TooLarge), "{what}: {}", refused.message());
        }
        for honest in [&honest, &longer] {
            client.fetch(fetch(&honest.http(), max)).await.unwrap();
        }
    }
    let answer = client.fetch(fetch(&longer.http(), CAP)).await.unwrap().into_inner();
    assert_eq!((answer.status, answer.body.as_slice()), (200, &b"short"[..]));
    let grown = (process.kept("status", "VmHWM:") * 1024).saturating_sub(before);
    assert!(grown < 2 * CAP, "the program grew by {grown} bytes, with a bound of {CAP}");
    tokio::task::spawn_blocking(|| process.end()).await.unwrap();
}
