//! Many callers at once.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use broker_svc::broker::Broker;

use crate::{
    ANSWER_BYTES,
    here::{broker, brokered, token},
    turns::{Targets, Times},
    upstream::{Upstream, ok},
};

/// Callers at once.
const CALLERS: [usize; 3] = [1, 16, 128];
/// How long the slow upstream takes.
const SLOW: Duration = Duration::from_secs(3);
/// Calls of the slow upstream at once.
const SLOW_CALLS: usize = 4;
/// How often: what a busy machine does to one round it does to the other.
const SLOW_ROUNDS: usize = 3;
/// Fast calls of one round, with and without the slow ones.
const FAST_CALLS: usize = 1000;
/// The last of them ends after at most so many times what the upstream takes for one: none waits for another.
const TOGETHER_RATIO_MAX: f64 = 1.2;
/// Rest between two fast calls: without it the median is near 60 or near 125 µs, as the kernel happens to place the threads.
const FAST_PAUSE: Duration = Duration::from_millis(2);
/// A fast call beside them takes at most so many times one that is alone.
const FAST_RATIO_MAX: f64 = 2.0;

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

/// Four calls of a slow upstream at once and fast ones beside them; then fast ones alone; and again.
pub async fn slow_beside_fast(fast: &str, targets: &mut Targets) {
    let slow = Upstream::plain(|_, out| {
        std::thread::sleep(SLOW);
        ok(out, &"x".repeat(ANSWER_BYTES))
    });
    let broker = broker(&format!("{fast}\", \"{}", slow.http()), 10);
    let (mut alone, mut with, mut ends) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..SLOW_ROUNDS {
        alone.extend(beside(&broker, fast, || false).await);
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
        with.extend(beside(&broker, fast, || calls.iter().any(|call| call.is_finished())).await);
        for call in calls {
            ends.push(call.await.unwrap());
        }
    }
    let (first, last) = (*ends.iter().min().unwrap(), *ends.iter().max().unwrap());
    println!(
        "{SLOW_CALLS} calls of an upstream that takes {SLOW:?}   end after {first:.1?} to {last:.1?}, {}",
        targets.ratio(last, SLOW, TOGETHER_RATIO_MAX)
    );
    let (with, alone) = (Times::of(with), Times::of(alone));
    for percent in [50, 99] {
        let (with, alone) = (with.part(percent), alone.part(percent));
        println!(
            "a fast call beside them   p{percent} {with:.1?} against {alone:.1?} alone, {}",
            targets.ratio(with, alone, FAST_RATIO_MAX)
        );
    }
}

/// Fast calls until there were enough of them, or something is over.
async fn beside(broker: &Arc<Broker>, url: &str, over: impl Fn() -> bool) -> Vec<Duration> {
    let token = token(broker, 0);
    let mut times = Vec::new();
    while times.len() < FAST_CALLS && !over() {
        let begun = Instant::now();
        brokered(broker, &token, url).await;
        times.push(begun.elapsed());
        tokio::time::sleep(FAST_PAUSE).await;
    }
    times
}
