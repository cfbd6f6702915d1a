//! What compiling costs others, and what others cost it: warm calls beside modules that are compiled one after the other, and a
//! cold module on a machine whose cores are all busy.

use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicU64, Ordering},
};

use proto::sandbox::v1::Runtime;

use crate::{
    beside::{self, Turn},
    caller::{Caller, start},
    figures::{Targets, Times, of, time},
    hostile::another,
    process::Process,
    warm::large,
};

/// How much longer a cold module may take where every core is busy: less than what a compiling child is waited for.
const SLOWER_MAX: f64 = 30.0;

pub async fn bench(targets: &mut Targets) {
    let directory = tempfile::tempdir().unwrap();
    let process = Process::start(directory.path(), &[]).await;
    let (module, ended) = (large(), Arc::new(AtomicU64::new(0)));
    let quiet = first_call(&process.caller, &another(&module, usize::MAX)).await;
    let busy = {
        let stop = Arc::new(AtomicBool::new(false));
        let threads = busy(&stop);
        let busy = first_call(&process.caller, &another(&module, usize::MAX - 1)).await;
        stop.store(true, Ordering::Relaxed);
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        busy
    };
    time("first call of the large module", quiet.median());
    time("the same with a busy thread on each core", busy.median());
    targets.at_most("cold with busy cores / cold", of(busy.median(), quiet.median()), SLOWER_MAX);
    let counted = Arc::clone(&ended);
    let others = move |caller: Caller, turn: Turn| {
        let (module, counted) = (module.clone(), Arc::clone(&counted));
        async move {
            let mut number = turn.round * 1_000;
            while turn.goes_on() {
                first_call(&caller, &another(&module, number)).await;
                number += 1;
                counted.fetch_add(1, Ordering::Relaxed);
            }
        }
    };
    beside::bench((&process, directory.path()), "compiling", others, targets).await;
    println!("{:<58} {:>9}", "modules compiled meanwhile", ended.load(Ordering::Relaxed));
}

async fn first_call(caller: &Caller, module: &[u8]) -> Times {
    Times::of(1, || async {
        let uri = caller.put(module).await;
        let (outcome, _) = caller.execute(start(&uri, Runtime::Wasm32Areev, "[1]")).await.unwrap();
        assert_eq!(outcome.output_json, "[1]", "{}", outcome.text);
    })
    .await
}

/// A thread for each core that does nothing else than to be busy.
fn busy(stop: &Arc<AtomicBool>) -> Vec<std::thread::JoinHandle<()>> {
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let spin = |stop: Arc<AtomicBool>| {
        std::thread::spawn(move || {
            while !stop.load(Ordering::Relaxed) {
                std::hint::spin_loop();
            }
        })
    };
    (0..cores).map(|_| spin(Arc::clone(stop))).collect()
}
