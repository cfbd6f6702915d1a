//! What the journal costs, against the disk's own floor: prints medians and ratios.
#![expect(clippy::print_stdout, reason = "a benchmark prints what it measures")]
#![expect(clippy::unwrap_used, reason = "a benchmark may panic")]

use std::{
    fs::File,
    io::{self, Write as _},
    path::Path,
    sync::Arc,
    time::{Duration, Instant},
};

use content_digest::Digest;
use runner_svc::journal::{
    Append, Claim, Durability, Journal, NewRun, Options, PayloadFiles, RealDisk, Record, RunHeader, Update, Urgency,
};

const RECORD_BYTES: usize = 1024;
const SAMPLES: usize = 1000;
const WRITERS: usize = 64;
const APPENDS_A_WRITER: u64 = 200;
const RUNS_BETWEEN: usize = 10_000;
const RUNS_TIMED: usize = 100;

fn main() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let floor = median(floor(&dir.path().join("floor")));
    println!("write + fdatasync of 1 KiB        {floor:>10.1?}");
    runtime.block_on(async {
        let journal = open(&dir.path().join("store"));
        let first = median(one_node_runs(&journal, "first").await);
        let append = median(sequential(&journal).await);
        println!("sequential append of 1 KiB        {append:>10.1?}   {:.1} × the floor", ratio(append, floor));
        let rate = together(&journal).await;
        println!(
            "{WRITERS} writers                        {rate:>8.0}/s   {:.1} × 1 / floor",
            rate * floor.as_secs_f64()
        );
        fill(&journal).await;
        let later = median(one_node_runs(&journal, "later").await);
        println!("a one-node run, the first         {first:>10.1?}");
        println!("a one-node run after {RUNS_BETWEEN}        {later:>10.1?}   {:.2} × the first", ratio(later, first));
    });
}

fn floor(path: &Path) -> Vec<Duration> {
    let mut file = File::create(path).unwrap();
    let bytes = [b'x'; RECORD_BYTES];
    let timed = (0..SAMPLES).map(|_| {
        let started = Instant::now();
        file.write_all(&bytes).unwrap();
        file.sync_data().unwrap();
        started.elapsed()
    });
    timed.collect()
}

async fn sequential(journal: &Journal) -> Vec<Duration> {
    journal.create_run(new_run("sequential".to_owned())).await.unwrap();
    let mut timed = Vec::with_capacity(SAMPLES);
    for place in (1..).take(SAMPLES) {
        let adding = append("sequential", place);
        let started = Instant::now();
        journal.append(adding).await.unwrap();
        timed.push(started.elapsed());
    }
    timed
}

/// Records a second of many writers, each waiting for its own acknowledgement.
async fn together(journal: &Journal) -> f64 {
    for writer in 0..WRITERS {
        journal.create_run(new_run(format!("w{writer}"))).await.unwrap();
    }
    let started = Instant::now();
    let writers = (0..WRITERS).map(|writer| {
        let journal = journal.clone();
        tokio::spawn(async move {
            for place in 1..=APPENDS_A_WRITER {
                journal.append(append(&format!("w{writer}"), place)).await.unwrap();
            }
        })
    });
    for done in futures::future::join_all(writers).await {
        done.unwrap();
    }
    (WRITERS as u64 * APPENDS_A_WRITER) as f64 / started.elapsed().as_secs_f64()
}

/// Times runs as one node makes them: the start with its intent, then the result with the end.
async fn one_node_runs(journal: &Journal, name: &str) -> Vec<Duration> {
    let mut timed = Vec::with_capacity(RUNS_TIMED);
    for number in 0..RUNS_TIMED {
        let started = Instant::now();
        one_node_run(journal, format!("{name}{number}")).await;
        timed.push(started.elapsed());
    }
    timed
}

async fn fill(journal: &Journal) {
    let writers = (0..WRITERS).map(|writer| {
        let journal = journal.clone();
        tokio::spawn(async move {
            for number in 0..RUNS_BETWEEN.div_ceil(WRITERS) {
                one_node_run(&journal, format!("between{writer}-{number}")).await;
            }
        })
    });
    for done in futures::future::join_all(writers).await {
        done.unwrap();
    }
}

async fn one_node_run(journal: &Journal, run_id: String) {
    journal.create_run(new_run(run_id.clone())).await.unwrap();
    let mut last = append(&run_id, 1);
    last.update = Update { summary: Some(b"{}".to_vec()), finished: true, ..Update::default() };
    journal.append(last).await.unwrap();
}

fn new_run(run_id: String) -> NewRun {
    let header = RunHeader {
        run_id,
        namespace: "bench".to_owned(),
        plan_hash: Digest::ZERO,
        started_at_ms: 0,
        principal: "user:bench".to_owned(),
        manifest_digest: Digest::ZERO,
        input_digest: Digest::ZERO,
        parent: None,
    };
    let claim = Claim { holder: "bench".to_owned(), ttl_ms: 15_000, now_ms: 0 };
    NewRun { header, claim, records: vec![record()], update: Update::default() }
}

fn append(run_id: &str, expected_next: u64) -> Append {
    let (run_id, urgency, update) = (run_id.to_owned(), Urgency::Work, Update::default());
    Append { run_id, expected_next, fence: 1, urgency, records: vec![record()], update }
}

fn record() -> Record {
    Record { bytes: vec![b'x'; RECORD_BYTES], payloads: Vec::new() }
}

fn open(dir: &Path) -> Journal {
    let options = Options {
        durability: Durability::PowerLoss,
        files: Arc::new(NoFiles),
        disk: Arc::new(RealDisk),
        cache_bytes: 64 * 1024 * 1024,
    };
    Journal::open(dir, options).unwrap()
}

/// No text here is large.
struct NoFiles;

impl PayloadFiles for NoFiles {
    fn put(&self, _digest: &Digest, _bytes: &[u8]) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn get(&self, _digest: &Digest) -> io::Result<Vec<u8>> {
        Err(io::ErrorKind::Unsupported.into())
    }
}

fn median(mut timed: Vec<Duration>) -> Duration {
    timed.sort();
    timed[timed.len() / 2]
}

fn ratio(one: Duration, other: Duration) -> f64 {
    one.as_secs_f64() / other.as_secs_f64()
}
