//! The right to drive a run: taken, kept, lost.

use std::sync::atomic::Ordering;

use runner_svc::journal::{AppendError, Journal, LeaseError};

use super::{Folder, append, claim, new_run, read_all, take};

#[tokio::test]
async fn a_living_lease_is_not_given_to_another_until_it_ends() {
    let journal = Journal::in_memory();
    journal.create_run(new_run("a")).await.unwrap();
    let held = take(&journal, "a", claim("you", 14_999)).await.unwrap_err();
    assert_eq!(held, LeaseError::Held { run_id: "a".to_owned(), holder: "me".to_owned(), left_ms: 1 });
    let lease = take(&journal, "a", claim("you", 15_000)).await.unwrap();
    assert_eq!((lease.fence, lease.until_ms, lease.holder.as_str()), (2, 30_000, "you"));
}

#[tokio::test]
async fn a_renewed_lease_lasts_longer() {
    let journal = Journal::in_memory();
    journal.create_run(new_run("a")).await.unwrap();
    assert_eq!(journal.renew_lease("a", 1, 15_000, 10_000).await.unwrap().until_ms, 25_000);
    assert!(matches!(take(&journal, "a", claim("you", 24_000)).await, Err(LeaseError::Held { left_ms: 1000, .. })));
}

#[tokio::test]
async fn a_former_driver_can_write_nothing_and_renew_nothing() {
    let folder = Folder::new();
    let journal = folder.journal();
    journal.create_run(new_run("a")).await.unwrap();
    take(journal, "a", claim("you", 15_000)).await.unwrap();
    let lost = journal.append(append("a", 2, 1)).await.unwrap_err();
    assert_eq!(lost, AppendError::LeaseLost { run_id: "a".to_owned(), given: 1, current: 2 });
    assert!(lost.to_string().starts_with("RUN-E021"));
    let lost = journal.renew_lease("a", 1, 15_000, 15_000).await.unwrap_err();
    assert_eq!(lost, LeaseError::Lost { run_id: "a".to_owned(), given: 1, current: 2 });
    journal.append(append("a", 2, 2)).await.unwrap();
}

#[tokio::test]
async fn the_holder_itself_may_take_its_lease_anew() {
    let journal = Journal::in_memory();
    journal.create_run(new_run("a")).await.unwrap();
    assert_eq!(take(&journal, "a", claim("me", 1)).await.unwrap().fence, 2);
}

#[tokio::test]
async fn a_restarted_runner_takes_over_at_once() {
    let mut folder = Folder::new();
    folder.journal().create_run(new_run("a")).await.unwrap();
    let lease = take(folder.reopen(), "a", claim("another instance", 1)).await.unwrap();
    assert_eq!(lease.fence, 2);
    let held = take(folder.journal(), "a", claim("a third", 2)).await.unwrap_err();
    assert!(matches!(held, LeaseError::Held { .. }), "the new lease is a living process's: {held}");
}

#[tokio::test]
async fn nobody_drives_a_finished_or_unknown_run() {
    let journal = Journal::in_memory();
    let mut new = new_run("a");
    new.update.finished = true;
    journal.create_run(new).await.unwrap();
    assert_eq!(take(&journal, "a", claim("you", 99_999)).await, Err(LeaseError::Finished("a".to_owned())));
    assert_eq!(journal.renew_lease("a", 1, 1, 1).await, Err(LeaseError::Finished("a".to_owned())));
    assert_eq!(take(&journal, "b", claim("you", 1)).await, Err(LeaseError::NotFound("b".to_owned())));
}

#[tokio::test]
async fn a_takeover_and_what_follows_from_it_are_one_commit_and_a_start_without_one_makes_none() {
    let mut folder = Folder::new();
    folder.journal().create_run(new_run("a")).await.unwrap();
    folder.reopen();
    let syncs = || folder.disk.syncs.load(Ordering::SeqCst);
    let opened = syncs();
    let lease = folder.journal().take_over(claim("another instance", 1), append("a", 1, 2)).await.unwrap();
    assert_eq!((lease.fence, lease.holder.as_str()), (2, "another instance"));
    assert_eq!(syncs(), opened + 1, "lease, records and the count of openings are durable together");
    assert_eq!(folder.journal().run("a").unwrap().fence, 2);
    assert_eq!(read_all(folder.journal(), "a").len(), 2);
    // The opening was counted with that commit: the next one's claimant is another process again.
    folder.reopen().take_over(claim("a third", 2), append("a", 2, 3)).await.unwrap();
}

#[tokio::test]
async fn a_takeover_by_an_old_fence_or_place_writes_nothing() {
    let mut folder = Folder::new();
    folder.journal().create_run(new_run("a")).await.unwrap();
    let journal = folder.reopen();
    let lost = journal.take_over(claim("you", 1), append("a", 1, 1)).await.unwrap_err();
    assert_eq!(lost, LeaseError::Lost { run_id: "a".to_owned(), given: 1, current: 1 });
    let conflict = journal.take_over(claim("you", 1), append("a", 7, 2)).await.unwrap_err();
    assert_eq!(conflict, LeaseError::Conflict { run_id: "a".to_owned(), expected: 7, next: 1 });
    assert_eq!((journal.run("a").unwrap().fence, read_all(journal, "a").len()), (1, 1));
}
