//! Crashes: a process that is killed while it appends, and a second process on the same directory.

use std::{
    collections::BTreeMap,
    fs::{self, OpenOptions},
    io::Write as _,
    path::Path,
    process::{Child, Command},
    time::Instant,
};

use runner_svc::journal::OpenError;

use super::{DEADLINE, append, claim, event, new_run, open, patiently, read_all, take};

const CHILD: &str = "JOURNAL_TEST_CRASH_DIR";
const WRITERS: u64 = 8;
const ROUNDS: u64 = 4;
const ACKS_A_ROUND: usize = 300;

#[test]
fn a_killed_process_loses_no_acknowledged_record() {
    let dir = tempfile::tempdir().unwrap();
    let store = dir.path().join("store");
    let acks = dir.path().join("acks");
    for round in 1..=ROUNDS {
        let before = lines(&acks);
        let mut child = spawn(dir.path());
        wait_for(&mut child, || lines(&acks) >= before + ACKS_A_ROUND);
        match open(&store) {
            Err(OpenError::InUse { pid, .. }) => assert_eq!(pid, child.id().to_string()),
            other => panic!("a second process is refused, not {:?}", other.err()),
        }
        child.kill().unwrap();
        child.wait().unwrap();
        check(&store, &acks, round);
    }
}

fn check(store: &Path, acks: &Path, round: u64) {
    let mut acked = BTreeMap::<String, u64>::new();
    let text = fs::read_to_string(acks).unwrap();
    for line in text.lines() {
        let (run, next) = line.split_once(' ').unwrap();
        acked.insert(run.to_owned(), next.parse().unwrap());
    }
    assert_eq!(acked.len() as u64, WRITERS, "round {round}");
    let journal = patiently(|| open(store));
    for (run, next) in acked {
        let kept = read_all(&journal, &run);
        assert!(kept.len() as u64 >= next, "round {round}: {run} has {} of {next}", kept.len());
        for (place, bytes) in (0..).zip(kept) {
            assert_eq!(bytes, event(place).bytes);
        }
    }
}

/// Runs in a process of its own, until it is killed. Without its variable it has nothing to do.
#[tokio::test]
async fn the_child_appends_until_it_is_killed() {
    let Some(dir) = std::env::var_os(CHILD) else { return };
    let dir = Path::new(&dir);
    let journal = open(&dir.join("store")).unwrap();
    let writers = (0..WRITERS).map(|writer| {
        let journal = journal.clone();
        let mut acks = OpenOptions::new().create(true).append(true).open(dir.join("acks")).unwrap();
        async move {
            let run = format!("r{writer}");
            let (mut next, fence) = match journal.create_run(new_run(&run)).await {
                Ok(created) => (created.next_sequence, created.lease.fence),
                Err(_) => {
                    let lease = take(&journal, &run, claim("me", 0)).await.unwrap();
                    (journal.run(&run).unwrap().next_sequence, lease.fence)
                }
            };
            loop {
                next = journal.append(append(&run, next, fence)).await.unwrap().next_sequence;
                acks.write_all(format!("{run} {next}\n").as_bytes()).unwrap();
            }
        }
    });
    futures::future::join_all(writers).await;
}

fn spawn(dir: &Path) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "journal::crash::the_child_appends_until_it_is_killed", "--nocapture"])
        .env(CHILD, dir)
        .spawn()
        .unwrap()
}

fn lines(acks: &Path) -> usize {
    fs::read_to_string(acks).map_or(0, |text| text.lines().count())
}

fn wait_for(child: &mut Child, mut holds: impl FnMut() -> bool) {
    let started = Instant::now();
    while !holds() {
        assert!(child.try_wait().unwrap().is_none(), "the child ended by itself");
        assert!(started.elapsed() < DEADLINE, "the child acknowledges nothing");
        std::thread::yield_now();
    }
}
