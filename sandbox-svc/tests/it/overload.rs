//! More callers than there are places: each is served or told when to come again, and no place is lost.

use proto::{
    fault::{Reason, reason_of, retry_after_of},
    sandbox::v1::{OutcomeKind, Runtime, Start},
};

use rustix::process::{Pid, Resource, Rlimit, getrlimit, prlimit};

use crate::{
    attacks, guests,
    process::Process,
    rig::{Rig, assert_output, fuel, start, until, within_ms},
};

const PURE: Runtime = Runtime::Wasm32Areev;
const SLOTS: usize = 4;
const QUEUE: usize = 4;

async fn rig() -> Rig {
    Rig::with(|config| (config.capacity.slots, config.capacity.queue) = (SLOTS, QUEUE)).await
}

async fn all_free(rig: &Rig) {
    until("all is free", || (rig.sandbox.admission.running(), rig.sandbox.admission.queued()) == (0, 0)).await;
    let echo = guests::echo();
    let all = futures::future::join_all((0..SLOTS).map(|_| rig.run(&echo, PURE, "1"))).await;
    all.iter().for_each(|outcome| assert_output(outcome, "1"));
}

#[tokio::test(flavor = "multi_thread")]
async fn w17_one_caller_too_many_up_to_ten_times_as_many_are_served_or_told_to_come_again() {
    let rig = rig().await;
    let uri = rig.put(&wat::parse_str(guests::slow_echo()).unwrap()).await;
    assert_output(&rig.execute(start(&uri, PURE, "0")).await.unwrap().0, "0");
    let places = SLOTS + QUEUE;
    for callers in [places + 1, 2 * places, 10 * places] {
        let mut tasks = tokio::task::JoinSet::new();
        for number in 0..callers {
            let (caller, message) = (rig.caller(), start(&uri, PURE, &number.to_string()));
            tasks.spawn(async move {
                let mut refused = 0_u32;
                loop {
                    match caller.execute(message.clone()).await {
                        Ok((outcome, _)) => {
                            assert_output(&outcome, &number.to_string());
                            return refused;
                        }
                        Err(status) => {
                            assert_eq!(
                                (status.code(), reason_of(&status)),
                                (tonic::Code::ResourceExhausted, Some(Reason::Busy))
                            );
                            refused += 1;
                            tokio::time::sleep(retry_after_of(&status).expect("a hint when to come again")).await;
                        }
                    }
                }
            });
        }
        let refused: u32 = tasks.join_all().await.into_iter().sum();
        assert!(callers < 10 * places || refused > 0, "ten times as many do not fit");
        all_free(&rig).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn w17_no_slot_is_lost_however_a_guest_ends_or_is_left() {
    let rig = rig().await;
    for (number, attack) in attacks::all().into_iter().enumerate() {
        let uri = rig.put(&attack.module).await;
        let limited =
            Start { limits: fuel(100_000_000), deadline: within_ms(60_000), ..start(&uri, attack.runtime, "null") };
        // All of them also left in the middle, at once and after a moment.
        for _ in 0..SLOTS {
            let call = rig.begin(limited.clone()).await;
            if number % 2 == 0 {
                tokio::task::yield_now().await;
            }
            drop(call);
        }
        let ended = loop {
            match rig.execute(Start { limits: fuel(100_000), ..limited.clone() }).await {
                Ok((outcome, _)) => break outcome,
                Err(status) => assert_eq!(reason_of(&status), Some(Reason::Busy), "{}: {status:?}", attack.name),
            }
        };
        let ends = [attack.ends, &[OutcomeKind::OutOfFuel]].concat();
        assert!(ends.contains(&ended.kind()), "{}: {ended:?}", attack.name);
    }
    all_free(&rig).await;
}

#[tokio::test]
async fn who_comes_with_a_new_module_when_no_file_can_be_opened_is_told_to_come_again() {
    let directory = tempfile::tempdir().unwrap();
    let process = Process::start(directory.path(), &[]).await;
    let uri = process.caller.put(&wat::parse_str(guests::echo()).unwrap()).await;
    // The three of every program are open; of what comes on top nothing can be had.
    let id = Pid::from_raw(i32::try_from(process.id()).unwrap());
    let few = Rlimit { current: Some(3), ..getrlimit(Resource::Nofile) };
    let before = prlimit(id, Resource::Nofile, few).unwrap();
    let refused = process.caller.execute(start(&uri, PURE, "1")).await.unwrap_err();
    assert_eq!((reason_of(&refused), retry_after_of(&refused).is_some()), (Some(Reason::Busy), true), "{refused}");
    prlimit(id, Resource::Nofile, before).unwrap();
    assert_output(&process.caller.execute(start(&uri, PURE, "1")).await.unwrap().0, "1");
}
