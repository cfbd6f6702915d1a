//! What rules cost: the decision alone, and many of them.

use std::{hint::black_box, time::Instant};

use broker_svc::{
    config::policy_of,
    decide::{Ask, Right, decide},
    target::Target,
};

use crate::{
    here::{broker, brokered, policy, token},
    turns::{Targets, Way, in_turns},
};

/// Decisions that are measured together.
const DECISIONS: u32 = 100_000;
/// A call with ten thousand grants takes at most so many times one with ten.
const GRANTS_RATIO_MAX: f64 = 1.2;

/// The decision alone.
pub fn decisions() {
    for grants in [10, 10_000] {
        let policy = policy_of(&policy("https://api.example.com", grants)).unwrap();
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

/// Calls with many grants against calls with few.
pub async fn many_grants(url: &str, calls: usize, targets: &mut Targets) {
    let brokers = [10, 10_000].map(|grants| {
        let broker = broker(url, grants);
        (token(&broker, 0), broker)
    });
    let mut ways: Vec<Way<'_>> = Vec::new();
    for (token, broker) in &brokers {
        ways.push(Box::new(move || Box::pin(brokered(broker, token, url))));
    }
    let times = in_turns(&mut ways, calls).await;
    let (few, many) = (times[0].part(50), times[1].part(50));
    println!(
        "10,000 grants against 10   p50 {many:.1?} against {few:.1?}, {}",
        targets.ratio(many, few, GRANTS_RATIO_MAX)
    );
}
