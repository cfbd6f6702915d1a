//! Times, their percentiles, and the targets that ratios are held to.

use std::time::{Duration, Instant};

/// Measured times, shortest first.
#[derive(Default)]
pub struct Times(Vec<Duration>);

/// The ratios that have a target, and whether they met it.
#[derive(Default)]
pub struct Targets(Vec<Held>);

struct Held {
    line: String,
    met: bool,
}

impl Times {
    /// Times of something that is done again and again.
    pub async fn of<F: Future>(count: usize, mut action: impl FnMut() -> F) -> Self {
        let mut times = Vec::with_capacity(count);
        for _ in 0..count {
            let begun = Instant::now();
            action().await;
            times.push(begun.elapsed());
        }
        times.sort();
        Self(times)
    }

    /// Adds times that were measured at another moment.
    pub fn add(&mut self, mut times: Self) {
        self.0.append(&mut times.0);
        self.0.sort();
    }

    /// The median.
    pub fn median(&self) -> Duration {
        self.0[self.0.len() / 2]
    }

    /// The time that one in a hundred is over.
    pub fn p99(&self) -> Duration {
        self.0[self.0.len() * 99 / 100]
    }
}

impl Targets {
    /// Prints a ratio that may be at most so much.
    pub fn at_most(&mut self, what: &str, ratio: f64, most: f64) {
        self.hold(what, ratio, ratio <= most, &format!("at most {most}"));
    }

    /// Prints a ratio that must be at least so much.
    pub fn at_least(&mut self, what: &str, ratio: f64, least: f64) {
        self.hold(what, ratio, ratio >= least, &format!("at least {least}"));
    }

    fn hold(&mut self, what: &str, ratio: f64, met: bool, target: &str) {
        let line = format!("{what:<58} {ratio:>9.2}   {target}: {}", if met { "met" } else { "MISSED" });
        println!("{line}");
        self.0.push(Held { line, met });
    }

    /// Says all of them once more, and whether all were met.
    pub fn judge(self) -> bool {
        println!("\nthe targets:");
        self.0.iter().for_each(|held| println!("{}", held.line));
        self.0.iter().all(|held| held.met)
    }
}

/// The median of ratios that were measured one after another.
pub fn median(mut ratios: Vec<f64>) -> f64 {
    ratios.sort_by(f64::total_cmp);
    ratios[ratios.len() / 2]
}

/// Prints what follows.
pub fn title(text: &str) {
    println!("\n{text}");
}

/// Prints a time.
pub fn time(what: &str, time: Duration) {
    println!("{what:<58} {time:>9.1?}");
}

/// Prints a ratio that has no target.
pub fn ratio(what: &str, ratio: f64) {
    println!("{what:<58} {ratio:>9.2}");
}

/// One time in terms of another.
pub fn of(one: Duration, other: Duration) -> f64 {
    one.as_secs_f64() / other.as_secs_f64()
}
