//! What runs take of disk and memory is within its bounds. Prints what it measured.

use std::io::Write as _;

use e2e::sizes::{Chain, Large};

fn say(measured: &impl std::fmt::Display) {
    // Past the capture of a passing test's output.
    std::io::stdout().write_all(format!("{measured}\n").as_bytes()).unwrap();
}

#[tokio::test]
async fn a_chain_of_1000_nodes_takes_less_than_2_mb_and_is_verified_in_less_than_100_mb() {
    let chain = Chain::measure().await.unwrap();
    say(&chain);
    assert!(chain.is_small(), "{chain}");
}

#[tokio::test]
async fn large_results_take_less_than_three_times_themselves_on_the_disk() {
    let large = Large::measure().await.unwrap();
    say(&large);
    assert!(large.is_small(), "{large}");
}
