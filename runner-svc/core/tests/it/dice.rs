//! Draws for generated cases: the same seed draws the same. Seeds are printed, and one variable plays one of them again.

use std::ops::Range;

/// Plays this one seed instead of all.
const SEED_VARIABLE: &str = "AREEV_SEED";
/// Plays so many seeds instead of the usual number.
const CASES_VARIABLE: &str = "AREEV_CASES";

/// A small generator (splitmix64); nothing here has to be secret.
pub struct Dice(u64);

impl Dice {
    pub fn of(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x5851_f42d_4c95_7f2d)
    }

    /// The draws of one thing in a case, whenever and however often they are asked for.
    pub fn about(seed: u64, thing: &str) -> Self {
        let digest = content_digest::Digest::of(format!("{seed}/{thing}"));
        Self(u64::from_be_bytes(digest.as_bytes()[..8].try_into().unwrap()))
    }

    pub fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^ (bits >> 31)
    }

    pub fn below(&mut self, end: usize) -> usize {
        usize::try_from(self.draw() % end as u64).unwrap()
    }

    /// Whether something happens that does so once in so many times.
    pub fn once_in(&mut self, times: usize) -> bool {
        self.below(times) == 0
    }

    pub fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())]
    }
}

/// Plays one case a seed; the failing one is named with what plays it again.
pub fn play(cases: u64, case: impl Fn(u64) + std::panic::RefUnwindSafe) {
    for seed in seeds(cases) {
        let played = std::panic::catch_unwind(|| case(seed));
        assert!(played.is_ok(), "seed {seed} failed: {SEED_VARIABLE}={seed} plays it alone");
    }
}

fn seeds(cases: u64) -> Range<u64> {
    let number = |variable: &str| std::env::var(variable).ok().map(|text| text.parse::<u64>().unwrap());
    let seeds = match number(SEED_VARIABLE) {
        Some(seed) => seed..seed + 1,
        None => 0..number(CASES_VARIABLE).unwrap_or(cases),
    };
    println!("seeds {seeds:?}");
    seeds
}
