//! Copies of a store that is in use, and indexes that are made anew.

use runner_svc::journal::CopyError;

use super::{Folder, append, claim, new_run, open, patiently, read_all, take};

const RUNS: usize = 20;

fn name(run: usize) -> String {
    format!("run-{run}")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_copy_made_while_runs_are_written_holds_a_whole_prefix_of_each_and_goes_on_from_there() {
    let folder = Folder::new();
    let journal = folder.journal();
    for run in 0..RUNS {
        journal.create_run(new_run(&name(run))).await.unwrap();
    }
    let writers: Vec<_> = (0..RUNS)
        .map(|run| {
            let journal = journal.clone();
            tokio::spawn(async move {
                for place in 1..60 {
                    journal.append(append(&name(run), place, 1)).await.unwrap();
                }
            })
        })
        .collect();
    let copies = tempfile::tempdir().unwrap();
    for number in 0..3 {
        let dest = copies.path().join(number.to_string());
        let before: Vec<u64> = (0..RUNS).map(|run| journal.run(&name(run)).unwrap().next_sequence).collect();
        assert_eq!(journal.copy_to(&dest).await.unwrap().runs, RUNS as u64);
        let copy = patiently(|| open(&dest));
        assert!(copy.check_indexes(false).await.unwrap().is_empty());
        for (run, before) in before.into_iter().enumerate() {
            let records = read_all(&copy, &name(run));
            let info = copy.run(&name(run)).unwrap();
            assert!(records.len() as u64 == info.next_sequence && info.next_sequence >= before);
            let lease = take(&copy, &name(run), claim("you", 1)).await.unwrap();
            copy.append(append(&name(run), info.next_sequence + 1, lease.fence)).await.unwrap();
            assert_eq!(read_all(&copy, &name(run)).len(), records.len() + 2);
        }
    }
    for writer in writers {
        writer.await.unwrap();
    }
    let taken = journal.copy_to(copies.path()).await.unwrap_err();
    assert!(matches!(&taken, CopyError::Dest { .. }) && taken.to_string().contains("not empty"), "{taken}");
}

#[tokio::test]
async fn an_index_that_lost_a_run_or_names_one_that_is_gone_is_told_and_made_anew() {
    let mut folder = Folder::new();
    for run in 0..3 {
        folder.journal().create_run(new_run(&name(run))).await.unwrap();
    }
    folder.close();
    let store = patiently(|| sled::Config::new().path(folder.dir.path().join("journal")).flush_every_ms(None).open());
    let unfinished = |run: u64| [&[0x30][..], &run.to_be_bytes()].concat();
    store.remove(unfinished(1)).unwrap().unwrap();
    store.insert(unfinished(77), store.get(unfinished(0)).unwrap().unwrap()).unwrap();
    store.flush().unwrap();
    drop(store);
    let journal = folder.reopen();
    let told = journal.check_indexes(false).await.unwrap();
    assert_eq!(told.len(), 2, "{told:?}");
    assert_eq!(journal.check_indexes(true).await.unwrap().len(), 2);
    assert!(journal.check_indexes(false).await.unwrap().is_empty());
    assert_eq!(journal.unfinished(None, 10).unwrap().len(), 3);
}
