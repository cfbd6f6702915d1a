//! A lease that is shorter than one effect is renewed while the effect lasts: nobody else gets the run meanwhile.

use std::time::Duration;

use runner_svc::{
    dispatch::HostToolAt,
    journal::{Claim, Journal, LeaseError},
    runs::{RunStatus, Summary},
};

use crate::{
    lease_lost::takeover,
    recovery::rig::{Host, Plan, eventually},
};

/// Much shorter than the effect, which lasts until it is let go.
const LEASE: Duration = Duration::from_millis(60);

/// Somebody else wants the run, at a time by its own clock: for how much longer it is refused.
async fn refused_for_ms(journal: &Journal, now_ms: u64) -> u64 {
    let info = journal.run("r1").unwrap();
    let claim = Claim { holder: "another".to_owned(), ttl_ms: 15_000, now_ms };
    match journal.take_over(claim, takeover("r1", (info.next_sequence, info.fence + 1))).await {
        Err(LeaseError::Held { run_id, holder, left_ms }) => {
            assert!(run_id == "r1" && holder.starts_with("user:runner at node-1 "), "{holder}");
            left_ms
        }
        other => panic!("the run is held: {other:?}"),
    }
}

#[tokio::test]
async fn a_lease_shorter_than_an_effect_is_renewed_while_the_effect_lasts_and_the_run_keeps_its_driver() {
    let gate = tempfile::tempdir().unwrap();
    let open = gate.path().join("open");
    let command = format!("cat > /dev/null; while [ ! -e '{}' ]; do sleep 0.02; done; echo '{{}}'", open.display());
    let mut host = Host::with_lease(HostToolAt::Command(command), LEASE);
    host.start("r1", &Plan::tools(), "{}").await;
    let runs = host.runs();
    let journal = runs.shared().journal.clone();
    let lease_ms = u64::try_from(LEASE.as_millis()).unwrap();
    let first_end_ms = refused_for_ms(&journal, 0).await;
    // Long enough that without renewals anybody could have had it, several times over.
    while refused_for_ms(&journal, 0).await < first_end_ms + 5 * lease_ms {
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    let info = journal.run("r1").unwrap();
    assert_eq!((info.fence, info.finished), (1, false), "the first lease, in the one effect that is in flight");
    std::fs::write(&open, "").unwrap();
    eventually("the run ends", || journal.run("r1").unwrap().finished).await;
    let info = journal.run("r1").unwrap();
    assert_eq!(info.fence, 1, "nobody else drove it");
    let summary: Summary = serde_json::from_slice(&info.summary).unwrap();
    assert_eq!(summary.status, RunStatus::Completed, "{}", summary.reason);
}
