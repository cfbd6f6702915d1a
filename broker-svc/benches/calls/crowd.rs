//! Many callers at once.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use broker_svc::broker::Broker;

use crate::{
    ANSWER_BYTES, CALLS,
    here::{broker, brokered, token},
    turns::Times,
    upstream::{Upstream, ok},
};

/// Callers at once.
const CALLERS: [usize; 3] = [1, 16, 128];
/// How long the slow upstream takes.
const SLOW: Duration = Duration::from_secs(3);
/// Calls of the slow upstream at once.
const SLOW_CALLS: usize = 4;

/// Calls a second.
pub async fn rates(url: &str, calls: usize) {
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

/// Four calls of a slow upstream at once, and a fast one beside them again and again.
pub async fn slow_beside_fast(fast: &str) {
    let slow = Upstream::plain(|_, out| {
        std::thread::sleep(SLOW);
        ok(out, &"x".repeat(ANSWER_BYTES))
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
    println!("a fast call beside them   p50 {:.1?} against {:.1?} alone", with.part(50), alone.part(50));
}

/// Fast calls until there were enough of them, or something is over.
async fn beside(broker: &Arc<Broker>, url: &str, over: impl Fn() -> bool) -> Times {
    let token = token(broker, 0);
    let mut times = Vec::new();
    while times.len() < CALLS && !over() {
        let begun = Instant::now();
        brokered(broker, &token, url).await;
        times.push(begun.elapsed());
    }
    Times::of(times)
}
