//! What hostile guests and callers cost somebody else: a caller's warm calls alone, and while another tenant does its worst,
//! every kind of it.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, SystemTime},
};

use content_digest::Digest;
use proto::sandbox::v1::{Limits, Runtime, Start};
use tokio::task::JoinSet;

use crate::{
    attacks,
    beside::{self, Turn},
    bombs,
    caller::{Caller, start},
    figures::Targets,
    guests,
    process::Process,
    warm::{echo, small},
};

/// Hostile callers, more than there are slots for them; every sixth one sends compile bombs.
const HOSTILE: usize = 12;
const BOMBING: usize = 6;
/// The least time that a runner would allow, in milliseconds.
const DEADLINE_MS: u64 = 200;
/// Calls canceled in the middle.
const CANCELS: usize = 100_000;
const CANCELING: usize = 16;

/// One way to do harm, and how often it was done.
struct Attack {
    name: String,
    act: Act,
    done: AtomicU64,
}

enum Act {
    /// A module that runs as long as it may.
    Run(Runtime, Vec<u8>),
    /// A module that is hard to compile, each time as another one.
    Compile(Vec<u8>),
    /// An upload under a name that is not its own.
    Misname(Vec<u8>),
    /// A call that is no call.
    Misspell(Box<Start>),
    /// A call that is left in the middle.
    Leave(Vec<u8>),
}

pub async fn bench(targets: &mut Targets) {
    let directory = tempfile::tempdir().unwrap();
    let process = Process::start(directory.path(), &[]).await;
    let uri = process.caller.put(&small()).await;
    echo(&process.caller, &uri, "quiet").await;
    let resident = process.resident().0;
    let (attacks, bombs) = (Arc::new(attacks()), Arc::new(bombs()));
    for attack in attacks.iter() {
        if let Act::Run(_, module) | Act::Leave(module) = &attack.act {
            process.caller.put(module).await;
        }
    }
    let (doing, bombing) = (Arc::clone(&attacks), Arc::clone(&bombs));
    let others = move |caller: Caller, turn: Turn| {
        let (attacks, bombs) = (Arc::clone(&doing), Arc::clone(&bombing));
        async move {
            let all = (0..HOSTILE).map(|number| {
                let attacks = if number % BOMBING == 0 { &bombs } else { &attacks };
                attack(caller.clone(), turn.clone(), number, attacks)
            });
            futures::future::join_all(all).await;
        }
    };
    let rounds = beside::bench((&process, directory.path()), "hostile guests", others, targets).await;
    let done = |attack: &Attack| attack.done.load(Ordering::Relaxed);
    let all = attacks.iter().chain(bombs.iter());
    println!("{:<58} {:>9}", "ways to do harm", attacks.len() + bombs.len());
    println!("{:<58} {:>9}", "hostile calls that ended meanwhile", all.clone().map(done).sum::<u64>());
    let undone: Vec<_> = all.filter(|attack| done(attack) == 0).map(|attack| &attack.name).collect();
    assert!(undone.is_empty(), "nobody did {undone:?}");
    let mib = |bytes: u64| bytes / (1024 * 1024);
    let (_, peak) = process.resident();
    println!("{:<58} {} MiB before, {} at its highest", "resident memory", mib(resident), mib(peak));
    println!("{:<58} {:?} MiB", "of it after each round", rounds.into_iter().map(mib).collect::<Vec<_>>());
    let kept = process.describe().await.module_bytes;
    println!("{:<58} {} MiB, of 256 that may be kept", "of it modules as they were uploaded", mib(kept));
    canceled(&process).await;
    echo(&process.caller, &uri, "quiet").await;
}

/// One hostile caller: does all of it in turns.
async fn attack(caller: Caller, turn: Turn, number: usize, attacks: &[Attack]) {
    // Begins elsewhere in each round, so that in all rounds together each is begun with, also where there is time for one.
    let mut at = turn.round * 7 + number * 5 + number / BOMBING * 3;
    while turn.goes_on() {
        let attack = &attacks[at % attacks.len()];
        // Refused as busy, or ended as it may.
        match &attack.act {
            Act::Run(runtime, module) => drop(caller.execute(message(*runtime, module)).await),
            Act::Compile(module) => {
                let module = another(module, (turn.round * 1_000 + at) * HOSTILE + number);
                caller.put(&module).await;
                drop(caller.execute(message(Runtime::Wasm32Areev, &module)).await);
            }
            Act::Misname(bytes) => drop(caller.put_as(&Digest::of("something else").to_uri(), bytes).await),
            Act::Misspell(start) => drop(caller.execute(Start::clone(start)).await),
            Act::Leave(module) => drop(caller.begin(message(Runtime::Wasm32Areev, module)).await),
        }
        attack.done.fetch_add(1, Ordering::Relaxed);
        at += 1;
    }
}

fn message(runtime: Runtime, module: &[u8]) -> Start {
    let limits = Some(Limits { fuel: Some(u64::MAX), ..Limits::default() });
    let deadline = Some((SystemTime::now() + Duration::from_millis(DEADLINE_MS)).into());
    let uri = Digest::of(module).to_uri();
    Start { tenant: "hostile".to_owned(), limits, deadline, ..start(&uri, runtime, "null") }
}

/// Every hostile module that the tests know, and what a caller can do.
fn attacks() -> Vec<Attack> {
    let mut attacks: Vec<_> =
        attacks::all().into_iter().map(|known| named(known.name, Act::Run(known.runtime, known.module))).collect();
    let good = message(Runtime::Wasm32Areev, &small());
    let misspelled = |name, change: &dyn Fn(&mut Start)| {
        let mut start = good.clone();
        change(&mut start);
        named(name, Act::Misspell(Box::new(start)))
    };
    attacks.extend([
        named("an upload under another name", Act::Misname(vec![0; 1 << 20])),
        misspelled("a digest in upper case", &|start| start.module_digest = start.module_digest.to_uppercase()),
        misspelled("a digest without its algorithm", &|start| start.module_digest = "0".repeat(64)),
        misspelled("an input of deep nesting", &|start| start.input_json = "[".repeat(1 << 20)),
        misspelled("the greatest input", &|start| start.input_json = format!("\"{}\"", "x".repeat((8 << 20) - 2))),
        named("a call that is left", Act::Leave(wat::parse_str(guests::endless()).unwrap())),
    ]);
    attacks
}

fn bombs() -> Vec<Attack> {
    let bombs = bombs::all().into_iter();
    bombs.map(|(name, wat)| named(name, Act::Compile(wat::parse_str(wat).unwrap()))).collect()
}

fn named(name: &str, act: Act) -> Attack {
    Attack { name: name.to_owned(), act, done: AtomicU64::new(0) }
}

/// The same module under another digest: a custom section is put behind it.
pub fn another(module: &[u8], number: usize) -> Vec<u8> {
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
