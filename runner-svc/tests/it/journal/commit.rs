//! Commits: answered after the sync, shared by all that is ready, and honest when the disk fails.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
    mpsc,
};

use runner_svc::journal::{Append, AppendError, CreateError, Durability, Health, Journal, Options, ReadError, Trouble};

use super::{CACHE_BYTES, FakeDisk, Files, Folder, append, event, new_run, read_all, until};

/// Holds the disk at its next sync.
struct Gate {
    reached: Arc<AtomicBool>,
    go: mpsc::Sender<()>,
}

fn hold_next_sync(disk: &FakeDisk) -> Gate {
    let (go, wait) = mpsc::channel::<()>();
    let reached = Arc::new(AtomicBool::new(false));
    let flag = Arc::clone(&reached);
    let mut held = false;
    *disk.on_sync.lock().unwrap() = Some(Box::new(move || {
        if !std::mem::replace(&mut held, true) {
            flag.store(true, Ordering::SeqCst);
            let _ = wait.recv();
        }
    }));
    Gate { reached, go }
}

#[tokio::test]
async fn an_append_is_answered_and_read_only_after_its_sync_has_returned() {
    let folder = Folder::new();
    folder.journal().create_run(new_run("a")).await.unwrap();
    let watcher = folder.journal().watch("a").unwrap();
    let gate = hold_next_sync(&folder.disk);
    let journal = folder.journal().clone();
    let mut adding = append("a", 1, 1);
    adding.update.summary = Some(b"new".to_vec());
    let appending = tokio::spawn(async move { journal.append(adding).await });
    until("the sync", || gate.reached.load(Ordering::SeqCst)).await;
    assert!(!appending.is_finished());
    assert_eq!(read_all(folder.journal(), "a").len(), 1);
    let run = folder.journal().run("a").unwrap();
    assert_eq!((run.next_sequence, &*run.summary), (1, &b""[..]));
    assert_eq!(*watcher.borrow(), 1);
    gate.go.send(()).unwrap();
    assert_eq!(appending.await.unwrap().unwrap().next_sequence, 2);
    assert_eq!(read_all(folder.journal(), "a").len(), 2);
    assert_eq!(*watcher.borrow(), 2);
}

#[tokio::test]
async fn a_run_cannot_be_seen_before_it_is_durable() {
    let folder = Folder::new();
    let gate = hold_next_sync(&folder.disk);
    let journal = folder.journal().clone();
    let creating = tokio::spawn(async move { journal.create_run(new_run("a")).await });
    until("the sync", || gate.reached.load(Ordering::SeqCst)).await;
    assert_eq!(folder.journal().run("a"), Err(ReadError::NotFound("a".to_owned())));
    assert!(folder.journal().list_runs("ops", None, 9).unwrap().is_empty());
    assert!(folder.journal().unfinished(None, 9).unwrap().is_empty());
    gate.go.send(()).unwrap();
    creating.await.unwrap().unwrap();
    assert_eq!(folder.journal().list_runs("ops", None, 9).unwrap().len(), 1);
}

#[tokio::test]
async fn sixty_four_writers_that_are_ready_share_one_sync() {
    let folder = Folder::new();
    let runs = (0..64).map(|number| format!("r{number}")).collect::<Vec<_>>();
    for run in &runs {
        folder.journal().create_run(new_run(run)).await.unwrap();
    }
    let gate = hold_next_sync(&folder.disk);
    let before = folder.disk.syncs.load(Ordering::SeqCst);
    let first = tokio::spawn({
        let journal = folder.journal().clone();
        async move { journal.append(append("r0", 1, 1)).await }
    });
    until("the first sync", || gate.reached.load(Ordering::SeqCst)).await;
    let mut others =
        Box::pin(futures::future::join_all(runs[1..].iter().map(|run| folder.journal().append(append(run, 1, 1)))));
    assert!(futures::future::poll_immediate(&mut others).await.is_none(), "all are queued, none is answered");
    gate.go.send(()).unwrap();
    first.await.unwrap().unwrap();
    assert!(others.await.iter().all(Result::is_ok));
    assert_eq!(folder.disk.syncs.load(Ordering::SeqCst) - before, 2, "one for the first, one for the other 63");
}

/// What is not durable is not read, whatever lies in the store's memory.
fn nothing_new_is_read(journal: &Journal) {
    match journal.run("a") {
        Ok(run) => assert_eq!(run.next_sequence, 1),
        Err(error) => assert!(matches!(error, ReadError::Storage(_)), "{error}"),
    }
}

/// Breaks the disk, sees that nothing is acknowledged, mends it, and sees that all goes on.
async fn broken_and_mended(breaks: impl Fn(&FakeDisk, bool)) {
    let mut folder = Folder::new();
    let journal = folder.journal().clone();
    journal.create_run(new_run("a")).await.unwrap();
    let health = journal.health();
    breaks(&folder.disk, true);
    let refused = journal.append(append("a", 1, 1)).await.unwrap_err();
    assert!(matches!(&refused, AppendError::Storage(storage) if storage.kind == Trouble::Write), "{refused}");
    assert!(refused.to_string().starts_with("RUN-E020"), "{refused}");
    assert!(matches!(&*health.borrow(), Health::Unavailable { .. }));
    nothing_new_is_read(&journal);
    let refused = journal.create_run(new_run("b")).await.unwrap_err();
    assert!(
        matches!(refused, CreateError::Storage(storage) if !storage.in_doubt),
        "it is refused before it is written"
    );
    // A refused order is no commit: what the failed one hid stays hidden.
    nothing_new_is_read(&journal);
    breaks(&folder.disk, false);
    until("the recovery", || *health.borrow() == Health::Ready).await;
    // Whether the refused record was written is unknown until now.
    let next = journal.run("a").unwrap().next_sequence;
    assert!((1..=2).contains(&next));
    journal.append(append("a", next, 1)).await.unwrap();
    journal.create_run(new_run("b")).await.unwrap();
    drop((journal, health));
    let kept = read_all(folder.reopen(), "a");
    assert_eq!(kept, (0..=next).map(|place| event(place).bytes).collect::<Vec<_>>());
}

#[tokio::test]
async fn a_failing_sync_acknowledges_nothing_and_is_recovered_from() {
    broken_and_mended(|disk, broken| disk.fail_sync.store(broken, Ordering::SeqCst)).await;
}

#[tokio::test]
async fn a_failing_flush_acknowledges_nothing_and_is_recovered_from() {
    broken_and_mended(|disk, broken| disk.fail_flush.store(broken, Ordering::SeqCst)).await;
}

#[tokio::test]
async fn a_failed_group_refuses_each_of_its_orders_and_forgets_what_it_staged() {
    let folder = Folder::new();
    let journal = folder.journal();
    journal.create_run(new_run("a")).await.unwrap();
    folder.disk.fail_flush.store(true, Ordering::SeqCst);
    let both = futures::future::join(journal.append(append("a", 1, 1)), journal.append(append("a", 2, 1)));
    let (one, two) = both.await;
    assert!(matches!(one, Err(AppendError::Storage(_))) && matches!(two, Err(AppendError::Storage(_))));
    folder.disk.fail_flush.store(false, Ordering::SeqCst);
    let health = journal.health();
    until("the recovery", || *health.borrow() == Health::Ready).await;
    let next = journal.run("a").unwrap().next_sequence;
    assert_eq!(read_all(journal, "a").len() as u64, next);
}

#[tokio::test]
async fn a_store_for_throwaway_use_does_not_sync() {
    let dir = tempfile::tempdir().unwrap();
    let (disk, files) = (Arc::new(FakeDisk::default()), Arc::new(Files::default()));
    let options =
        Options { durability: Durability::ProcessCrash, files, disk: Arc::clone(&disk) as _, cache_bytes: CACHE_BYTES };
    let journal = Journal::open(dir.path(), options).unwrap();
    journal.create_run(new_run("a")).await.unwrap();
    let adding: Append = append("a", 1, 1);
    journal.append(adding).await.unwrap();
    assert_eq!(disk.syncs.load(Ordering::SeqCst), 0);
}
