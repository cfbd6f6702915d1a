//! What the broker costs: a brokered call against the same request sent directly by the same kind of client, in plain text and over
//! TLS; the decision alone; calls a second; ten thousand grants against ten; a slow upstream beside a fast one. What is compared
//! is measured in turns, so that a busy machine is busy for both. Prints numbers, ratios and whether they meet their targets;
//! ends with a failure where one is missed.
//!
//! `cargo bench -p broker-svc` runs it; `AREEV_BENCH_CALLS` changes the number of calls.

#![allow(clippy::unwrap_used, reason = "a bench may panic")]
#![expect(clippy::print_stdout, reason = "a bench prints what it measured")]

#[path = "../tests/it/doors.rs"]
#[allow(dead_code, reason = "tests use the rest of it")]
mod doors;
#[path = "../tests/it/upstream.rs"]
#[allow(dead_code, reason = "tests use the rest of it")]
mod upstream;

use std::{
    hint::black_box,
    process::ExitCode,
    sync::Arc,
    time::{Duration, Instant, SystemTime},
};

use broker_svc::{
    audit::Door,
    broker::{Broker, CallBounds, Parts, Request},
    config::policy_of,
    decide::{Ask, Right, decide},
    in_force::InForce,
    resolve::SystemResolver,
    send::{Clients, Courier, Pinned, client_tls},
    target::Target,
    token::{Binding, Ceilings, Permit, TokenBounds, Tokens},
};
use doors::Doors;
use proto::broker::v1::FetchRequest;
use upstream::{Upstream, ok};

/// Calls of each kind, one after the other.
const CALLS: usize = 2000;
/// Calls before anything is measured.
const WARM: usize = 200;
/// Decisions that are measured together.
const DECISIONS: u32 = 100_000;
/// A brokered call takes at most so many times a direct one; with ten thousand grants at most so many times one with ten.
const CALL_RATIO_MAX: f64 = 2.0;
const GRANTS_RATIO_MAX: f64 = 1.2;
/// How long the slow upstream takes.
const SLOW: Duration = Duration::from_secs(3);
/// Calls of the slow upstream at once.
const SLOW_CALLS: usize = 4;
/// Callers at once.
const CALLERS: [usize; 3] = [1, 16, 128];

/// The targets so far.
#[derive(Default)]
struct Targets {
    missed: usize,
}

impl Targets {
    /// How many times, and whether that is good enough.
    fn ratio(&mut self, one: Duration, other: Duration, most: f64) -> String {
        let times = one.as_secs_f64() / other.as_secs_f64();
        let met = times <= most;
        self.missed += usize::from(!met);
        format!("ratio {times:.2} ({}: at most {most})", if met { "met" } else { "missed" })
    }

    /// Says it once more.
    fn judge(&self) -> ExitCode {
        println!("targets missed: {}", self.missed);
        if self.missed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
    }
}

fn main() -> ExitCode {
    let mut targets = Targets::default();
    proto::tls::install_crypto_provider();
    let calls = std::env::var("AREEV_BENCH_CALLS").map_or(CALLS, |text| text.parse().unwrap());
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let body = "x".repeat(1024);
        let said = body.clone();
        let plain = Upstream::plain(move |_, out| ok(out, &said));
        let tls = Upstream::tls(move |_, out| ok(out, &body));
        for (name, url) in [("plain", plain.http()), ("TLS", tls.https("127.0.0.1"))] {
            against(name, &url, calls, &mut targets).await;
        }
        decisions();
        rates(&plain.http(), calls).await;
        many_grants(&plain.http(), calls, &mut targets).await;
        slow_beside_fast(&plain.http()).await;
    });
    targets.judge()
}

fn policy(url: &str, grants: usize) -> String {
    let others: String = (1..grants)
        .map(|n| format!("[grants.t{n}]\ncredentials = [\"a\"]\nhosts = [\"{url}\", \"https://h{n}.example.com\"]\n"))
        .collect();
    format!(
        "[policy]\nallow_hosts = [\"{url}\"]\nallow_private = [\"127.0.0.0/8\"]\n[credentials.a]\nkind = \"bearer\"\n\
         from = \"env:PATH\"\nhosts = [\"{url}\"]\n[grants.t]\nhosts = [\"{url}\"]\n{others}"
    )
}

fn broker(url: &str, grants: usize) -> Arc<Broker> {
    let tls = client_tls(Some(&upstream::authority())).unwrap();
    // The credential is a file with a token, as in a deployment; its value does not matter here.
    let file = std::env::temp_dir().join(format!("areev-bench-token-{}", std::process::id()));
    std::fs::write(&file, "a-token-of-the-bench").unwrap();
    let rules = policy(url, grants).replace("env:PATH", &format!("file:{}", file.display()));
    let rules = rules.replace("[grants.t]\n", "[grants.t]\ncredentials = [\"a\"]\n");
    let in_force = InForce::open(policy_of(&rules).unwrap(), None).ok().unwrap();
    Arc::new(Broker::new(Parts {
        in_force,
        tokens: Tokens::new(Arc::new(SystemTime::now), TokenBounds::default()),
        courier: Courier::new(Box::new(SystemResolver), Clients::new(tls)),
        bounds: CallBounds::default(),
    }))
}

fn token(broker: &Broker, node: usize) -> String {
    let binding = Binding { run_id: "r".into(), node: format!("n{node}"), tool_name: "t".into(), ..Binding::default() };
    let ceilings = Ceilings { max_calls: 1_000_000, max_response_bytes: 64 * 1024, ..Ceilings::default() };
    let permit = Permit::new(binding, None, ceilings, SystemTime::now() + Duration::from_secs(3000));
    broker.tokens.mint(permit).ok().unwrap().token
}

async fn brokered(broker: &Broker, token: &str, url: &str) {
    let request = Request { url: url.to_owned(), credential: Some("a".into()), ..Request::default() };
    let done = broker.call(broker.admit(token, Door::Grpc).ok().unwrap(), request).await.ok().unwrap();
    assert_eq!(done.status, 200);
}

/// The same request by the same kind of client, the answer read whole.
async fn direct(client: &reqwest::Client, url: &str) {
    let answer = client.get(url).header("authorization", "Bearer a-token-of-the-bench").send().await.unwrap();
    assert_eq!(answer.bytes().await.unwrap().len(), 1024);
}

async fn against(name: &str, url: &str, calls: usize, targets: &mut Targets) {
    let broker = broker(url, 10);
    let token = token(&broker, 0);
    let target = Target::parse(url).unwrap();
    let clients = Clients::new(client_tls(Some(&upstream::authority())).unwrap());
    let addresses = vec![[127, 0, 0, 1].into()];
    let client = clients.get(&Pinned { origin: target.origin().clone(), credential: None, addresses }).ok().unwrap();
    let mut doors = Doors::open(Arc::clone(&broker)).await;
    let (mut straight, mut through, mut remote) = (Vec::new(), Vec::new(), Vec::new());
    // One of each in turn, so that the machine's moods meet all alike.
    for round in 0..WARM + calls {
        let begun = Instant::now();
        direct(&client, url).await;
        let first = begun.elapsed();
        let begun = Instant::now();
        brokered(&broker, &token, url).await;
        let second = begun.elapsed();
        let fetch = FetchRequest {
            token: token.clone(),
            url: url.to_owned(),
            credential: Some("a".into()),
            ..FetchRequest::default()
        };
        let begun = Instant::now();
        doors.grpc.fetch(fetch).await.unwrap();
        let third = begun.elapsed();
        if round >= WARM {
            straight.push(first);
            through.push(second);
            remote.push(third);
        }
    }
    doors.close().await;
    for (way, times) in [("brokered", through), ("brokered, by gRPC", remote)] {
        let (p50, p99) = (part(&times, 50), part(&times, 99));
        let (own50, own99) = (part(&straight, 50), part(&straight, 99));
        println!(
            "{name:<6} {way:<18} p50 {p50:>9.1?} against {own50:>9.1?}, {}   p99 {p99:>9.1?} against {own99:>9.1?}, {}",
            targets.ratio(p50, own50, CALL_RATIO_MAX),
            targets.ratio(p99, own99, CALL_RATIO_MAX)
        );
    }
}

fn part(times: &[Duration], percent: usize) -> Duration {
    let mut sorted = times.to_vec();
    sorted.sort();
    sorted[(sorted.len() * percent / 100).min(sorted.len() - 1)]
}

fn decisions() {
    for grants in [10, 10_000] {
        let url = "https://api.example.com";
        let policy = policy_of(&policy(url, grants)).unwrap();
        let target = Target::parse("https://api.example.com/v1/messages?x=1").unwrap();
        let right = Right { tool: "t", definition: "", principal: "user:a", declaration: None, own: None };
        let ask = Ask { target: &target, method: "GET", credential: None, headers: &["accept"] };
        let begun = Instant::now();
        for _ in 0..DECISIONS {
            assert!(decide(black_box(&policy), right, black_box(ask)).is_ok());
        }
        println!("decision alone, {grants:>6} grants   {:>9.1?}", begun.elapsed() / DECISIONS);
    }
}

async fn rates(url: &str, calls: usize) {
    let broker = broker(url, 10);
    for callers in CALLERS {
        let begun = Instant::now();
        let each = calls.div_ceil(callers).max(20);
        let running: Vec<_> = (0..callers)
            .map(|caller| {
                let (broker, url) = (Arc::clone(&broker), url.to_owned());
                let token = token(&broker, caller);
                tokio::spawn(async move {
                    for _ in 0..each {
                        brokered(&broker, &token, &url).await;
                    }
                })
            })
            .collect();
        for caller in running {
            caller.await.unwrap();
        }
        let rate = (each * callers) as f64 / begun.elapsed().as_secs_f64();
        println!("{callers:>4} callers                      {rate:>9.0} calls a second");
    }
}

async fn many_grants(url: &str, calls: usize, targets: &mut Targets) {
    let (few, many) = (broker(url, 10), broker(url, 10_000));
    let (few_token, many_token) = (token(&few, 0), token(&many, 0));
    let (mut with_few, mut with_many) = (Vec::new(), Vec::new());
    for round in 0..WARM + calls {
        let begun = Instant::now();
        brokered(&few, &few_token, url).await;
        let first = begun.elapsed();
        let begun = Instant::now();
        brokered(&many, &many_token, url).await;
        if round >= WARM {
            with_few.push(first);
            with_many.push(begun.elapsed());
        }
    }
    let (few, many) = (part(&with_few, 50), part(&with_many, 50));
    println!(
        "10,000 grants against 10   p50 {many:.1?} against {few:.1?}, {}",
        targets.ratio(many, few, GRANTS_RATIO_MAX)
    );
}

/// Four calls of a slow upstream at once, and a fast one beside them again and again.
async fn slow_beside_fast(fast: &str) {
    let slow = Upstream::plain(|_, out| {
        std::thread::sleep(SLOW);
        ok(out, &"x".repeat(1024))
    });
    let broker = broker(&format!("{fast}\", \"{}", slow.http()), 10);
    let alone = beside(&broker, fast, || false).await;
    let begun = Instant::now();
    let calls: Vec<_> = (0..SLOW_CALLS)
        .map(|caller| {
            let (broker, token, url) = (Arc::clone(&broker), token(&broker, caller + 1), slow.http());
            tokio::spawn(async move {
                brokered(&broker, &token, &url).await;
                begun.elapsed()
            })
        })
        .collect();
    let with = beside(&broker, fast, || calls.iter().all(|call| call.is_finished())).await;
    let mut ends = Vec::new();
    for call in calls {
        ends.push(call.await.unwrap());
    }
    ends.sort();
    println!(
        "{SLOW_CALLS} calls of an upstream that takes {SLOW:?}   the first ends after {:.1?}, the last after {:.1?}",
        ends[0],
        ends[ends.len() - 1]
    );
    println!("a fast call beside them   p50 {:.1?} against {:.1?} alone", part(&with, 50), part(&alone, 50));
}

/// Fast calls until there were enough of them, or something is over.
async fn beside(broker: &Arc<Broker>, url: &str, over: impl Fn() -> bool) -> Vec<Duration> {
    let token = token(broker, 0);
    let mut times = Vec::new();
    while times.len() < CALLS && !over() {
        let begun = Instant::now();
        brokered(broker, &token, url).await;
        times.push(begun.elapsed());
    }
    times
}
