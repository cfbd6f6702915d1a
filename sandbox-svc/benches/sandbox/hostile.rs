//! What hostile guests cost somebody else: a caller's warm calls alone, and while another tenant does its worst.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use proto::sandbox::v1::{Limits, Runtime, Start};
use tokio::task::JoinSet;

use crate::{
    bombs,
    caller::{Caller, start},
    figures::{Targets, Times, median, of, time},
    guests,
    process::{Process, SOCKET, connect},
    warm::{echo, small},
};

const CALLS: usize = 3_000;
const ROUNDS: usize = 9;
/// Hostile callers, more than there are slots for them.
const HOSTILE: usize = 12;
/// Calls canceled in the middle.
const CANCELS: usize = 100_000;
const CANCELING: usize = 16;

pub async fn bench(targets: &mut Targets) {
    let directory = tempfile::tempdir().unwrap();
    let process = Process::start(directory.path(), &[]).await;
    let uri = process.caller.put(&small()).await;
    Times::of(CALLS, || echo(&process.caller, &uri, "quiet")).await;
    let resident = process.resident().0;
    let ended = Arc::new(AtomicU64::new(0));
    // In turns, so that what else the machine does meanwhile is in both.
    let (mut quiet, mut beside, mut ratios) = (Times::default(), Times::default(), Vec::new());
    for round in 0..ROUNDS {
        let alone = Times::of(CALLS, || echo(&process.caller, &uri, "quiet")).await;
        let stop = Arc::new(AtomicBool::new(false));
        // Threads and a connection of their own: what is measured is the service, not its clients.
        let (socket, stopping, counted) = (directory.path().join(SOCKET), Arc::clone(&stop), Arc::clone(&ended));
        let hostile = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let caller = connect(&socket);
                let attacks = (0..HOSTILE).map(|number| {
                    attack(caller.clone(), round * 1_000 + number, Arc::clone(&stopping), Arc::clone(&counted))
                });
                futures::future::join_all(attacks).await;
            });
        });
        tokio::time::sleep(Duration::from_millis(500)).await;
        let together = Times::of(CALLS, || echo(&process.caller, &uri, "quiet")).await;
        ratios.push(of(together.p99(), alone.p99()));
        quiet.add(alone);
        beside.add(together);
        stop.store(true, Ordering::Relaxed);
        tokio::task::spawn_blocking(|| hostile.join().unwrap()).await.unwrap();
    }
    println!("{:<58} {:>9}", "hostile calls that ended meanwhile", ended.load(Ordering::Relaxed));
    time("warm call alone, median", quiet.median());
    time("warm call alone, p99", quiet.p99());
    time("warm call beside hostile guests, median", beside.median());
    time("warm call beside hostile guests, p99", beside.p99());
    targets.at_most("p99 beside hostile guests / alone, median of rounds", median(ratios), 2.0);
    let mib = |bytes: u64| bytes / (1024 * 1024);
    let (now, peak) = process.resident();
    println!(
        "{:<58} {} MiB before, {} at its highest, {} after",
        "resident memory",
        mib(resident),
        mib(peak),
        mib(now)
    );
    canceled(&process).await;
    echo(&process.caller, &uri, "quiet").await;
}

/// One hostile caller: its modules in turn, each with the least that a runner allows.
async fn attack(caller: Caller, number: usize, stop: Arc<AtomicBool>, ended: Arc<AtomicU64>) {
    let modules: Vec<_> = modules().iter().map(|wat| wat::parse_str(wat).unwrap()).collect();
    let bomb = wat::parse_str(bombs::hungry()).unwrap();
    let (mut turn, mut uris) = (number, Vec::new());
    for module in &modules {
        uris.push(caller.put(module).await);
    }
    while !stop.load(Ordering::Relaxed) {
        let uri = if turn % 8 == 0 {
            caller.put(&another(&bomb, turn * 1_000_000 + number)).await
        } else {
            uris[turn % uris.len()].clone()
        };
        let limits = Some(Limits { fuel: Some(u64::MAX), ..Limits::default() });
        let deadline = Some((std::time::SystemTime::now() + Duration::from_millis(200)).into());
        let message =
            Start { tenant: "hostile".to_owned(), limits, deadline, ..start(&uri, Runtime::Wasm32AreevIo, "null") };
        // Refused as busy or ended as it may.
        let _whatever = caller.execute(message).await;
        ended.fetch_add(1, Ordering::Relaxed);
        turn += 1;
    }
}

fn modules() -> Vec<String> {
    let table = "(table $t 9000 10000 funcref)";
    let looping = |body: &str| guests::guest("", table, &format!("(loop $again {body} (br $again))"));
    vec![
        guests::endless(),
        looping("(memory.fill (i32.const 0) (i32.const 1) (i32.const 262144))"),
        looping("(memory.fill (i32.const 0) (i32.const 1) (i32.const 0))"),
        looping("(drop (memory.grow (i32.const 65536)))"),
        looping("(drop (memory.grow (i32.const 1)))"),
        looping("(table.fill $t (i32.const 0) (ref.null func) (i32.const 9000))"),
        looping("(drop (table.grow $t (ref.null func) (i32.const 0)))"),
        looping("(call $emit (i32.const 0) (i32.const 262144))"),
        guests::guest("", "(func $f (call $f) (call $f))", "(call $f)"),
        guests::pure("unreachable"),
        // The greatest output: eight megabytes of one number's digits.
        guests::pure(
            "(drop (memory.grow (i32.const 130))) (memory.fill (i32.const 0) (i32.const 49) (i32.const 8388608))
             (i32.store8 (i32.const 0) (i32.const 34)) (i32.store8 (i32.const 8388607) (i32.const 34))
             (call $emit (i32.const 0) (i32.const 8388608))",
        ),
        guests::guest("", "(func $begin (loop $again (br $again))) (start $begin)", ""),
    ]
}

/// The same module under another digest: a custom section is put behind it.
fn another(module: &[u8], number: usize) -> Vec<u8> {
    let mut bytes = module.to_vec();
    bytes.extend_from_slice(&[0, 10, 1, b'n']);
    bytes.extend_from_slice(&(number as u64).to_le_bytes());
    bytes
}

/// Starts calls that never end and drops them.
async fn canceled(process: &Process) {
    let uri = process.caller.put(&wat::parse_str(guests::endless()).unwrap()).await;
    let before = process.resident().0;
    let mut tasks = JoinSet::new();
    for _ in 0..CANCELING {
        let (caller, uri) = (process.caller.clone(), uri.clone());
        tasks.spawn(async move {
            for _ in 0..CANCELS / CANCELING {
                let _dropped = caller.begin(start(&uri, Runtime::Wasm32Areev, "null")).await;
            }
        });
    }
    tasks.join_all().await;
    while (process.describe().await.running, process.describe().await.queued) != (0, 0) {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let grown = process.resident().0.saturating_sub(before) / (1024 * 1024);
    println!("{CANCELS} calls canceled in the middle: no slot taken, resident memory grown by {grown} MiB");
}
