//! Draws for generated cases: the same seed draws the same. The seeds are fixed, so that a test that passes passes again; a failure
//! names its seed. Three variables play others:
//!
//! * `AREEV_SEED=17` plays this one alone, as a failure says;
//! * `AREEV_CASES=100000` plays so many, from 0 on;
//! * `AREEV_SEEDS=1000000..1100000` plays a range, for a wide run that is none of the usual ones.

use std::ops::Range;

/// Plays this one seed instead of all.
const SEED_VARIABLE: &str = "AREEV_SEED";
/// Plays so many seeds instead of the usual number.
const CASES_VARIABLE: &str = "AREEV_CASES";
/// Plays these seeds instead of the usual ones: from and end, which is not played.
const RANGE_VARIABLE: &str = "AREEV_SEEDS";

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

/// Plays one case a seed; the failing one is named with its own words and what plays it again.
pub fn play(cases: u64, case: impl Fn(u64) + std::panic::RefUnwindSafe) {
    let seeds = seeds(|variable| std::env::var(variable).ok(), cases);
    println!("seeds {seeds:?}");
    play_all(seeds, case);
}

fn play_all(seeds: Range<u64>, case: impl Fn(u64) + std::panic::RefUnwindSafe) {
    for seed in seeds {
        if let Err(panic) = std::panic::catch_unwind(|| case(seed)) {
            panic!("seed {seed} failed ({SEED_VARIABLE}={seed} plays it alone): {}", words(panic.as_ref()));
        }
    }
}

/// What a panic said.
fn words(panic: &(dyn std::any::Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no words")
}

fn seeds(variable: impl Fn(&str) -> Option<String>, cases: u64) -> Range<u64> {
    let number = |name: &str, text: &str| text.parse().unwrap_or_else(|_| panic!("{name} is {text:?}: give a number"));
    if let Some(seed) = variable(SEED_VARIABLE) {
        let seed: u64 = number(SEED_VARIABLE, &seed);
        return seed..seed + 1;
    }
    if let Some(range) = variable(RANGE_VARIABLE) {
        let ends = range.split_once("..").unwrap_or_else(|| panic!("{RANGE_VARIABLE} is {range:?}: give FROM..END"));
        let (from, end) = (number(RANGE_VARIABLE, ends.0), number(RANGE_VARIABLE, ends.1));
        assert!(from < end, "{RANGE_VARIABLE} is {range:?}: there is no seed in it");
        return from..end;
    }
    0..variable(CASES_VARIABLE).map_or(cases, |cases| number(CASES_VARIABLE, &cases))
}

#[test]
fn a_failing_case_names_its_seed_and_what_plays_it_again() {
    let failing = || play_all(0..10, |seed| assert!(seed != 7, "the plan of {seed} is wrong"));
    let said = std::panic::catch_unwind(failing).unwrap_err();
    assert_eq!(words(said.as_ref()), "seed 7 failed (AREEV_SEED=7 plays it alone): the plan of 7 is wrong");
}

#[test]
fn seeds_are_the_same_ones_unless_a_variable_names_others() {
    let given = |name: &'static str, value: &'static str| move |asked: &str| (asked == name).then(|| value.to_owned());
    assert_eq!(seeds(|_| None, 300), 0..300);
    assert_eq!(seeds(given(SEED_VARIABLE, "17"), 300), 17..18);
    assert_eq!(seeds(given(CASES_VARIABLE, "5"), 300), 0..5);
    assert_eq!(seeds(given(RANGE_VARIABLE, "1000..1200"), 300), 1000..1200);
    for wrong in ["1000", "1..x", "9..9"] {
        let refused = std::panic::catch_unwind(|| seeds(|name| (name == RANGE_VARIABLE).then(|| wrong.to_owned()), 1));
        assert!(words(refused.unwrap_err().as_ref()).starts_with("AREEV_SEEDS is"), "{wrong}");
    }
}
