//! Taking unfinished runs over: what one of them cannot be read for stops that one only.

pub mod rig;

use std::fs;

use content_digest::Digest;
use proto::fault::Reason;
use runner_svc::runs::RunStatus;
use serde_json::json;

use rig::{Host, Plan, eventually};

const RUNS: usize = 100;

/// A text that lies in a file of its own.
fn large(text: &str) -> String {
    json!({"text": text.repeat(100_000)}).to_string()
}

fn name(number: usize) -> String {
    format!("run-{number:03}")
}

/// A host that was stopped while a hundred runs waited for a person; runs 7 and 8 have an input in a file.
async fn stopped() -> Host {
    let mut host = Host::new();
    for number in 0..RUNS {
        let input = match number {
            7 => large("a"),
            8 => large("b"),
            _ => "{}".to_owned(),
        };
        host.start(&name(number), &Plan::ask(), &input).await;
    }
    host.stop().await;
    host
}

#[tokio::test]
async fn of_a_hundred_runs_only_those_whose_records_are_bad_are_not_driven_and_they_say_why() {
    let mut host = stopped().await;
    host.tamper(3);
    host.files.lose(&Digest::of(large("a")));
    host.files.fail(&Digest::of(large("b")), 2);
    let driven = host.restart().await;
    assert!(driven >= RUNS - 3, "{driven}");
    let runs = host.runs();
    eventually("the run whose file could not be read is driven", || runs.live(&name(8)).is_some()).await;
    assert_eq!((runs.quarantined(), runs.recovery_failures()), (2, 0));
    for number in (0..RUNS).filter(|number| ![3, 7].contains(number)) {
        let view = runs.live(&name(number)).unwrap_or_else(|| panic!("{} is not driven", name(number))).view();
        assert_eq!(view.summary.status, RunStatus::Waiting);
    }
    let (row, blob) = (runs.quarantine_of(&name(3)).unwrap(), runs.quarantine_of(&name(7)).unwrap());
    assert!(row.starts_with("RECOVERY_FAILED: RUN-E020") && row.contains("sequence 0"), "{row}");
    assert!(blob.starts_with("RECOVERY_FAILED") && blob.contains(&Digest::of(large("a")).to_hex()), "{blob}");
    assert_eq!(Reason::RecoveryFailed.name(), "RECOVERY_FAILED");
}

#[tokio::test]
async fn a_page_of_the_stores_file_that_is_lost_costs_at_most_the_runs_in_it_and_the_others_are_driven() {
    let mut host = stopped().await;
    let file = host.dir.path().join("journal/db");
    let mut bytes = fs::read(&file).unwrap();
    let end = bytes.iter().rposition(|byte| *byte != 0).unwrap();
    let page = end / 2 / 4096 * 4096;
    bytes[page..page + 4096].fill(0);
    fs::write(&file, bytes).unwrap();
    let driven = host.restart().await;
    let runs = host.runs();
    assert!(driven >= RUNS - 6, "{driven} are driven");
    assert!(host.dir.path().join("journal.damaged-1/db").is_file(), "the damaged one is kept");
    for number in 0..RUNS {
        let driven = runs.reach(&name(number)).await.is_some();
        let reason = runs.quarantine_of(&name(number));
        assert!(
            driven || reason.as_ref().is_some_and(|reason| reason.starts_with("RECOVERY_FAILED")),
            "{number}: {reason:?}"
        );
    }
}

#[tokio::test]
async fn a_run_whose_recovery_fails_for_now_says_what_it_waits_for() {
    let mut host = stopped().await;
    host.files.fail(&Digest::of(large("b")), 1_000_000);
    host.restart().await;
    let runs = host.runs();
    eventually("its recovery failed", || runs.recovery_failures() == 1).await;
    let recovering = runs.recovering(&name(8)).unwrap();
    assert!(recovering.what.starts_with("RECOVERY_FAILED") && recovering.failed, "{recovering:?}");
    assert_eq!(runs.quarantine_of(&name(8)), None);
    host.files.fail(&Digest::of(large("b")), 0);
    eventually("it is driven", || runs.live(&name(8)).is_some()).await;
    assert_eq!(runs.recovering(&name(8)), None);
}

#[tokio::test]
async fn a_run_that_ended_the_process_three_times_while_it_was_loaded_is_left_alone() {
    let mut host = stopped().await;
    let folder = host.dir.path().join("loading");
    let mark = |crashes: u32| {
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join(Digest::of(name(5)).to_hex()), format!("{crashes}\n{}\n", name(5))).unwrap();
    };
    mark(3);
    host.restart().await;
    let reason = host.runs().quarantine_of(&name(5)).unwrap();
    assert!(reason.contains("ended this process 3 times") && reason.contains("fsck"), "{reason}");
    assert_eq!(host.runs().quarantined(), 1);
    host.stop().await;
    mark(2);
    host.restart().await;
    assert!(host.runs().live(&name(5)).is_some(), "two are borne");
    assert_eq!(fs::read_dir(&folder).unwrap().count(), 0, "a load that comes to its end leaves no mark");
}

#[tokio::test]
async fn runs_that_are_too_large_to_be_in_memory_together_wait_on_the_disk_for_their_person() {
    let mut host = Host::new();
    let text = json!({"text": "x".repeat(8_000_000)}).to_string();
    for number in 0..12 {
        host.start(&name(number), &Plan::ask(), &text).await;
    }
    host.stop().await;
    let driven = host.restart().await;
    assert!(driven > 3 && driven < 12, "{driven} of 12 runs of 8 MB are in memory");
    let runs = host.runs();
    for number in 0..12 {
        let handle = runs.reach(&name(number)).await.expect("somebody asks for it");
        assert_eq!(handle.view().summary.status, RunStatus::Waiting);
    }
}
