//! What holds for both stores: creating, appending, reading, watching.

use content_digest::Digest;
use runner_core::payload::Payload;
use runner_svc::journal::{
    APPEND_BYTES_MAX, AppendError, CreateError, Journal, PAGE_BYTES_MAX, PAYLOAD_INLINE_BYTES_MAX, RECORD_BYTES_MAX,
    ReadError, Record, SUMMARY_BYTES_MAX, Update,
};

use super::{Folder, append, event, new_run, read_all, until};

/// Both stores, one after the other.
fn both() -> [(Option<Folder>, Journal); 2] {
    let folder = Folder::new();
    let journal = folder.journal().clone();
    [(None, Journal::in_memory()), (Some(folder), journal)]
}

#[tokio::test]
async fn a_run_is_made_once_and_a_second_start_gets_the_first_ones_header() {
    for (_folder, journal) in both() {
        let created = journal.create_run(new_run("a")).await.unwrap();
        assert_eq!((created.lease.fence, created.next_sequence), (1, 1));
        let mut second = new_run("a");
        second.header.principal = "user:other".to_owned();
        let Err(CreateError::AlreadyExists(first)) = journal.create_run(second).await else { panic!("made twice") };
        assert_eq!(*first, new_run("a").header);
        assert_eq!(read_all(&journal, "a").len(), 1);
    }
}

#[tokio::test]
async fn two_starts_at_once_make_one_run() {
    for (_folder, journal) in both() {
        let starts = (0..8).map(|_| journal.create_run(new_run("a")));
        let made = futures::future::join_all(starts).await.into_iter().filter(Result::is_ok).count();
        assert_eq!(made, 1);
    }
}

#[tokio::test]
async fn an_append_at_another_place_is_a_conflict_and_writes_nothing() {
    for (_folder, journal) in both() {
        journal.create_run(new_run("a")).await.unwrap();
        for expected in [0, 2, u64::MAX] {
            let refused = journal.append(append("a", expected, 1)).await.unwrap_err();
            assert_eq!(refused, AppendError::Conflict { run_id: "a".to_owned(), expected, next: 1 });
        }
        assert_eq!(journal.append(append("a", 1, 1)).await.unwrap().next_sequence, 2);
        assert_eq!(read_all(&journal, "a"), [event(0).bytes, event(1).bytes]);
    }
}

#[tokio::test]
async fn of_two_writers_at_one_place_one_wins() {
    for (_folder, journal) in both() {
        journal.create_run(new_run("a")).await.unwrap();
        for place in 1..20 {
            let (one, two) = tokio::join!(journal.append(append("a", place, 1)), journal.append(append("a", place, 1)));
            assert!(one.is_ok() != two.is_ok(), "{one:?} {two:?}");
        }
        assert_eq!(read_all(&journal, "a").len(), 20);
    }
}

#[tokio::test]
async fn nothing_is_appended_after_the_end() {
    for (_folder, journal) in both() {
        journal.create_run(new_run("a")).await.unwrap();
        let mut last = append("a", 1, 1);
        last.update.finished = true;
        journal.append(last).await.unwrap();
        let refused = journal.append(append("a", 2, 1)).await.unwrap_err();
        assert_eq!(refused, AppendError::Finished("a".to_owned()));
        assert!(journal.run("a").unwrap().finished);
        assert_eq!(read_all(&journal, "a").len(), 2);
    }
}

#[tokio::test]
async fn an_unknown_run_is_not_found_by_any_call() {
    for (_folder, journal) in both() {
        assert_eq!(journal.append(append("x", 0, 1)).await, Err(AppendError::NotFound("x".to_owned())));
        assert_eq!(journal.run("x"), Err(ReadError::NotFound("x".to_owned())));
        assert_eq!(journal.read("x", 0, 1), Err(ReadError::NotFound("x".to_owned())));
        assert!(matches!(journal.watch("x"), Err(ReadError::NotFound(_))));
    }
}

#[tokio::test]
async fn texts_of_every_size_read_back_and_large_ones_become_files() {
    for (folder, journal) in both() {
        journal.create_run(new_run("a")).await.unwrap();
        let mut adding = append("a", 1, 1);
        let sizes = [0, 1, 4096, PAYLOAD_INLINE_BYTES_MAX, PAYLOAD_INLINE_BYTES_MAX + 1, 1_000_000];
        adding.records[0].payloads = sizes.map(|size| Payload::new("x".repeat(size))).to_vec();
        journal.append(adding.clone()).await.unwrap();
        let page = journal.read("a", 1, 10).unwrap();
        assert_eq!(page.records.len(), 1);
        assert_eq!(page.records[0].payloads, adding.records[0].payloads);
        if let Some(folder) = folder {
            assert_eq!(folder.files.0.lock().unwrap().len(), 2);
            let own_files = folder.dir.path().join("journal/blobs");
            assert_eq!(std::fs::read_dir(own_files).unwrap().count(), 0, "the store made files that nobody syncs");
        }
    }
}

#[tokio::test]
async fn pages_are_bounded_in_records_and_in_bytes() {
    for (_folder, journal) in both() {
        journal.create_run(new_run("a")).await.unwrap();
        for place in 1..8 {
            let mut adding = append("a", place, 1);
            adding.records[0].payloads = vec![Payload::new(place.to_string().repeat(1_500_000))];
            journal.append(adding).await.unwrap();
        }
        assert_eq!(journal.read("a", 0, 2).unwrap().records.len(), 2);
        let page = journal.read("a", 1, 100).unwrap();
        let bytes = page.records.iter().map(|record| record.payloads[0].text().len()).sum::<usize>();
        assert!(page.records.len() == 2 && bytes <= PAGE_BYTES_MAX, "{} records", page.records.len());
        assert_eq!(read_all(&journal, "a").len(), 8);
        let beyond = journal.read("a", 99, 10).unwrap();
        assert!(beyond.records.is_empty());
        assert_eq!(beyond.next, 99);
    }
}

#[tokio::test]
async fn what_is_over_a_limit_is_refused_with_the_limit_and_writes_nothing() {
    for (_folder, journal) in both() {
        journal.create_run(new_run("a")).await.unwrap();
        let mut large_record = append("a", 1, 1);
        large_record.records[0].bytes = vec![b' '; RECORD_BYTES_MAX + 1];
        let mut large_summary = append("a", 1, 1);
        large_summary.update.summary = Some(vec![0; SUMMARY_BYTES_MAX + 1]);
        let mut large_whole = append("a", 1, 1);
        let record = Record { bytes: vec![b' '; RECORD_BYTES_MAX], payloads: Vec::new() };
        large_whole.records = vec![record; APPEND_BYTES_MAX / RECORD_BYTES_MAX];
        for adding in [large_record, large_summary, large_whole] {
            let refused = journal.append(adding).await.unwrap_err();
            assert!(matches!(refused, AppendError::TooLarge(_)), "{refused}");
        }
        let mut long_name = new_run("b");
        long_name.header.principal = "p".repeat(5000);
        assert!(matches!(journal.create_run(long_name).await, Err(CreateError::TooLarge(_))));
        let mut exact = append("a", 1, 1);
        exact.records[0].bytes = vec![b' '; RECORD_BYTES_MAX];
        exact.update.summary = Some(vec![0; SUMMARY_BYTES_MAX]);
        journal.append(exact).await.unwrap();
        assert_eq!(journal.run("a").unwrap().next_sequence, 2);
    }
}

#[tokio::test]
async fn a_watcher_sees_the_latest_head_and_slows_nobody() {
    for (_folder, journal) in both() {
        journal.create_run(new_run("a")).await.unwrap();
        let mut watcher = journal.watch("a").unwrap();
        assert_eq!(*watcher.borrow_and_update(), 1);
        for place in 1..50 {
            journal.append(append("a", place, 1)).await.unwrap();
        }
        until("the watcher's news", || *watcher.borrow() == 50).await;
        drop(watcher);
        journal.append(append("a", 50, 1)).await.unwrap();
        assert_eq!(*journal.watch("a").unwrap().borrow(), 51);
    }
}

#[tokio::test]
async fn the_status_document_changes_with_the_records() {
    for (_folder, journal) in both() {
        let mut new = new_run("a");
        new.update = Update { summary: Some(b"one".to_vec()), ..Update::default() };
        journal.create_run(new).await.unwrap();
        journal.append(append("a", 1, 1)).await.unwrap();
        assert_eq!(&*journal.run("a").unwrap().summary, b"one");
        let mut adding = append("a", 2, 1);
        adding.update.summary = Some(b"two".to_vec());
        journal.append(adding).await.unwrap();
        let run = journal.run("a").unwrap();
        assert_eq!((&*run.summary, run.next_sequence, run.finished), (&b"two"[..], 3, false));
    }
}

#[tokio::test]
async fn a_reopened_store_has_everything() {
    let mut folder = Folder::new();
    for run in ["a", "b"] {
        folder.journal().create_run(new_run(run)).await.unwrap();
        for place in 1..30 {
            folder.journal().append(append(run, place, 1)).await.unwrap();
        }
    }
    let journal = folder.reopen();
    for run in ["a", "b"] {
        assert_eq!(read_all(journal, run), (0..30).map(|place| event(place).bytes).collect::<Vec<_>>());
        assert_eq!(journal.append(append(run, 30, 1)).await.unwrap().next_sequence, 31);
    }
    assert_eq!(journal.create_run(new_run("c")).await.unwrap().next_sequence, 1);
    assert_eq!(Digest::of("plan"), journal.run("c").unwrap().header.plan_hash);
}
