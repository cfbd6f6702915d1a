//! A full disk: work is refused, ends of runs are written, and it goes on when there is room.

use std::{process::Command, sync::atomic::Ordering};

use runner_svc::journal::{AppendError, CreateError, Health, Trouble, Urgency};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::signal::unix::{SignalKind, signal};

use super::{Folder, append, claim, event, new_run, open, read_all, take, until};

#[tokio::test]
async fn on_a_full_disk_only_ends_of_runs_are_written() {
    let folder = Folder::new();
    let journal = folder.journal();
    journal.create_run(new_run("a")).await.unwrap();
    let health = journal.health();
    folder.disk.free_bytes.store(1024, Ordering::SeqCst);
    let refused = journal.append(append("a", 1, 1)).await.unwrap_err();
    assert!(matches!(&refused, AppendError::Storage(storage) if storage.kind == Trouble::DiskFull), "{refused}");
    assert!(matches!(journal.create_run(new_run("b")).await, Err(CreateError::Storage(_))));
    assert_eq!(*health.borrow(), Health::DiskFull);
    assert_eq!(take(journal, "a", claim("me", 1)).await.unwrap().fence, 2);
    let mut last = append("a", 2, 2);
    last.urgency = Urgency::Closing;
    last.update.finished = true;
    journal.append(last).await.unwrap();
    assert_eq!(read_all(journal, "a").len(), 3);
    folder.disk.free_bytes.store(u64::MAX, Ordering::SeqCst);
    until("the recovery", || *health.borrow() == Health::Ready).await;
    journal.create_run(new_run("b")).await.unwrap();
}

#[tokio::test]
async fn a_store_opens_on_a_full_disk_so_that_its_runs_can_be_ended() {
    let mut folder = Folder::new();
    folder.journal().create_run(new_run("a")).await.unwrap();
    let reserve = folder.dir.path().join("reserve");
    assert!(reserve.exists());
    folder.disk.free_bytes.store(1024, Ordering::SeqCst);
    let journal = folder.reopen().clone();
    assert!(!reserve.exists(), "the reserve is given up");
    let fence = take(&journal, "a", claim("you", 1)).await.unwrap().fence;
    let mut last = append("a", 2, fence);
    last.urgency = Urgency::Closing;
    journal.append(last).await.unwrap();
    assert!(matches!(journal.append(append("a", 3, fence)).await, Err(AppendError::Storage(_))));
    folder.disk.free_bytes.store(u64::MAX, Ordering::SeqCst);
    journal.append(append("a", 3, fence)).await.unwrap();
    assert!(reserve.exists(), "the reserve is taken again");
}

const CHILD: &str = "JOURNAL_TEST_FULL_DIR";

#[test]
fn a_store_whose_writes_really_fail_goes_on_when_they_work_again() {
    let dir = tempfile::tempdir().unwrap();
    let child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "journal::full::the_child_meets_a_limit_of_file_sizes", "--nocapture"])
        .env(CHILD, dir.path())
        .output()
        .unwrap();
    assert!(child.status.success(), "{}", String::from_utf8_lossy(&child.stderr));
}

/// Runs in a process of its own: the limit is the whole process's. Without its variable it has nothing to do.
#[tokio::test]
async fn the_child_meets_a_limit_of_file_sizes() {
    let Some(dir) = std::env::var_os(CHILD) else { return };
    // Writing over the limit raises SIGXFSZ, which would end the process.
    let _handled = signal(SignalKind::from_raw(25)).unwrap();
    let journal = open(dir.as_ref()).unwrap();
    journal.create_run(new_run("a")).await.unwrap();
    let health = journal.health();
    let whole = getrlimit(Resource::Fsize);
    let log = std::fs::metadata(std::path::Path::new(&dir).join("journal/db")).unwrap().len();
    setrlimit(Resource::Fsize, Rlimit { current: Some(log + 20_000), maximum: whole.maximum }).unwrap();
    let mut acked = 1;
    let refused = loop {
        let mut adding = append("a", acked, 1);
        adding.records[0].bytes = vec![b' '; 3000];
        match journal.append(adding).await {
            Ok(appended) => acked = appended.next_sequence,
            Err(refused) => break refused,
        }
        assert!(acked < 100_000, "the limit is never met");
    };
    assert!(matches!(&refused, AppendError::Storage(_)), "{refused}");
    assert!(matches!(*health.borrow(), Health::Unavailable { .. }));
    assert_eq!(read_all(&journal, "a").len() as u64, acked, "nothing that is not durable is read");
    setrlimit(Resource::Fsize, whole).unwrap();
    until("the recovery", || *health.borrow() == Health::Ready).await;
    let next = journal.run("a").unwrap().next_sequence;
    assert!(next >= acked, "an acknowledged record is lost: {next} of {acked}");
    journal.append(append("a", next, 1)).await.unwrap();
    assert_eq!(read_all(&journal, "a").last().unwrap(), &event(next).bytes);
}
