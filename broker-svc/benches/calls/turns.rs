//! Measuring in turns, and judging what came of it.

use std::{
    future::Future,
    pin::Pin,
    process::ExitCode,
    time::{Duration, Instant},
};

/// Rounds before anything is measured.
const WARM: usize = 200;

/// One way of doing what is compared: makes one call of it.
pub type Way<'a> = Box<dyn FnMut() -> Pin<Box<dyn Future<Output = ()> + Send + 'a>> + Send + 'a>;

/// Times of one way, sorted.
pub struct Times(Vec<Duration>);

/// The targets so far.
#[derive(Default)]
pub struct Targets {
    missed: usize,
}

/// One call of each way in turn, again and again, the first of them another one in each round: what one leaves behind, awake or
/// in a cache, serves each of the others alike.
pub async fn in_turns(ways: &mut [Way<'_>], rounds: usize) -> Vec<Times> {
    let mut times: Vec<_> = ways.iter().map(|_| Vec::with_capacity(rounds)).collect();
    for round in 0..WARM + rounds {
        for turn in 0..ways.len() {
            let way = (round + turn) % ways.len();
            let begun = Instant::now();
            ways[way]().await;
            if round >= WARM {
                times[way].push(begun.elapsed());
            }
        }
    }
    times.into_iter().map(Times::of).collect()
}

impl Times {
    /// Of what was measured.
    pub fn of(mut times: Vec<Duration>) -> Self {
        times.sort();
        Self(times)
    }

    /// What so many of a hundred do not exceed.
    pub fn part(&self, percent: usize) -> Duration {
        self.0[(self.0.len() * percent / 100).min(self.0.len() - 1)]
    }
}

impl Targets {
    /// How many times, and whether that is good enough.
    pub fn ratio(&mut self, one: Duration, other: Duration, most: f64) -> String {
        let times = times(one, other);
        let met = times <= most;
        self.missed += usize::from(!met);
        format!("ratio {times:.2} ({}: at most {most})", if met { "met" } else { "missed" })
    }

    /// Says it once more.
    pub fn judge(&self) -> ExitCode {
        println!("targets missed: {}", self.missed);
        if self.missed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
    }
}

/// How many times the other.
pub fn times(one: Duration, other: Duration) -> f64 {
    one.as_secs_f64() / other.as_secs_f64()
}
