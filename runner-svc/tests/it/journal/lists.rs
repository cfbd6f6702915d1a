//! Lists: runs of a namespace and of a plan, unfinished runs, pending asks.

use content_digest::Digest;
use runner_svc::journal::{Journal, RunRow};

use super::{Folder, append, new_run};

fn ids(rows: Vec<RunRow>) -> Vec<String> {
    rows.into_iter().map(|row| row.run.unwrap().header.run_id).collect()
}

#[tokio::test]
async fn runs_are_listed_newest_first_by_namespace_and_plan_page_by_page() {
    let folder = Folder::new();
    for journal in [&Journal::in_memory(), folder.journal()] {
        for number in 0..10 {
            let mut new = new_run(&format!("r{number}"));
            new.header.namespace = if number % 2 == 0 { "even" } else { "odd" }.to_owned();
            new.header.plan_hash = Digest::of(if number < 5 { "old" } else { "new" });
            journal.create_run(new).await.unwrap();
        }
        let first = journal.list_runs("even", None, 3).unwrap();
        let cursor = first.last().unwrap().number;
        assert_eq!(ids(first), ["r8", "r6", "r4"]);
        assert_eq!(ids(journal.list_runs("even", Some(cursor), 3).unwrap()), ["r2", "r0"]);
        assert_eq!(ids(journal.list_runs_of_plan("odd", Digest::of("new"), None, 9).unwrap()), ["r9", "r7", "r5"]);
        assert_eq!(ids(journal.list_runs_of_plan("odd", Digest::of("old"), Some(2), 9).unwrap()), ["r1"]);
        assert!(journal.list_runs("ev", None, 9).unwrap().is_empty());
        assert!(journal.list_runs("even", Some(0), 9).unwrap().is_empty());
    }
}

#[tokio::test]
async fn a_run_leaves_the_unfinished_ones_with_its_end() {
    let folder = Folder::new();
    for journal in [&Journal::in_memory(), folder.journal()] {
        for run in ["a", "b", "c"] {
            journal.create_run(new_run(run)).await.unwrap();
        }
        let mut last = append("b", 1, 1);
        last.update.finished = true;
        journal.append(last).await.unwrap();
        let rows = journal.unfinished(None, 1).unwrap();
        let cursor = rows[0].number;
        assert_eq!(ids(rows), ["a"]);
        assert_eq!(ids(journal.unfinished(Some(cursor), 9).unwrap()), ["c"]);
        assert!(journal.unfinished(Some(u64::MAX), 9).unwrap().is_empty());
    }
}

#[tokio::test]
async fn asks_are_pending_from_their_record_to_their_answer() {
    let folder = Folder::new();
    for journal in [&Journal::in_memory(), folder.journal()] {
        for run in ["a", "b"] {
            journal.create_run(new_run(run)).await.unwrap();
            let mut adding = append(run, 1, 1);
            adding.update.asks_opened = vec![Digest::of(format!("{run}1")), Digest::of(format!("{run}2"))];
            journal.append(adding).await.unwrap();
        }
        let first = journal.open_asks("ops", None, 2).unwrap();
        assert!(first.iter().all(|ask| ask.run_id == "a"));
        let cursor = first.last().map(|ask| (ask.run_number, ask.ask_id));
        let rest = journal.open_asks("ops", cursor, 9).unwrap();
        assert!(rest.len() == 2 && rest.iter().all(|ask| ask.run_id == "b"));
        let mut answering = append("a", 2, 1);
        answering.update.asks_closed = vec![first[0].ask_id];
        journal.append(answering).await.unwrap();
        let left = journal.open_asks("ops", None, 9).unwrap();
        assert_eq!(
            left.iter().map(|ask| ask.ask_id).collect::<Vec<_>>(),
            [first[1].ask_id, rest[0].ask_id, rest[1].ask_id]
        );
        assert!(journal.open_asks("other", None, 9).unwrap().is_empty());
    }
}
