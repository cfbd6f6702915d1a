//! Sandboxes that are full, silent or lost.

use std::{path::Path, sync::Arc, time::Duration};

use content_digest::Digest;
use futures::FutureExt as _;
use proto::{
    fault::{Fault, Reason},
    sandbox::v1::{Outcome, OutcomeKind},
};
use runner_core::{manifest::OnDangling, outcome::FailureCause, pinned::Runtime};
use runner_svc::dispatch::{
    DispatchConfig, Dispatcher, Effect, Ending, HostToolAt, NotJournaled, PATIENCE_DEFAULT, Slot,
};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use super::{
    fake_broker::FakeBroker,
    fake_sandbox::{Act, FakeSandbox, completed, ended},
    rig::*,
};

#[tokio::test]
async fn a_full_sandbox_spills_over_to_the_next_one() {
    let (log, [a, b]) = FakeSandbox::two_playing([vec![busy(Duration::from_secs(3600))], vec![completed("1")]]).await;
    assert_eq!(output(&send(&sandboxes(&[&a, &b]), code(Runtime::Wasm)).await), "1");
    let mut asked = log.all();
    asked.sort();
    assert_eq!(asked, ["start a", "start b"]);
}

#[tokio::test]
async fn when_all_are_full_the_effect_waits_and_tries_again() {
    let sandbox = FakeSandbox::playing([
        vec![busy(Duration::from_millis(20))],
        vec![busy(Duration::from_millis(20))],
        vec![completed("1")],
    ])
    .await;
    assert_eq!(output(&send(&sandboxes(&[&sandbox.url]), code(Runtime::Wasm)).await), "1");
    assert_eq!(sandbox.starts().len(), 3);
}

#[tokio::test]
async fn a_sandbox_that_stays_full_ends_in_a_timeout_that_says_so() {
    // The wait that it asks for is longer than the shortest timeout: the time runs out in it.
    let sandbox = FakeSandbox::playing([vec![busy(Duration::from_secs(3600))]]).await;
    let full = sandboxes(&[&sandbox.url]);
    let settled = timed_out(&full, || code(Runtime::Wasm), |settled| detail(settled).contains("busy")).await;
    assert!(detail(&settled).contains("passed while every sandbox was busy"), "{}", detail(&settled));
}

#[tokio::test]
async fn silent_sandboxes_spill_over_to_one_that_answers() {
    let sandbox = FakeSandbox::playing([vec![completed("1")]]).await;
    let mut urls = vec![sandbox.url.clone()];
    for _ in 0..9 {
        urls.push(nobody().await);
    }
    let urls: Vec<_> = urls.iter().map(String::as_str).collect();
    assert_eq!(output(&send(&sandboxes(&urls), code(Runtime::Native)).await), "1");
}

#[tokio::test]
async fn when_no_sandbox_answers_the_effect_fails_and_names_them() {
    let silent = nobody().await;
    let settled = send(&sandboxes(&[&silent]), code(Runtime::Native)).await;
    assert_eq!(failure(&settled).cause, FailureCause::ExecutorError);
    let detail = detail(&settled);
    assert!(detail.contains(&silent) && detail.contains("could be reached") && detail.contains("refused"), "{detail}");
}

#[tokio::test]
async fn an_effect_waits_for_a_silent_sandbox_as_long_as_it_may_take_and_says_what_it_waits_for() {
    let silent = nobody().await;
    let sandbox = Some(at(&[&silent]));
    let patient = DispatchConfig { sandbox, patience: PATIENCE_DEFAULT, ..config(Path::new("/nonexistent")) };
    let dispatcher = dispatcher(patient);
    let mut effect = code(Runtime::Native);
    effect.timeout = Duration::from_secs(2);
    let sending = send(&dispatcher, effect);
    let looking = eventually("the outage is seen", || {
        dispatcher.waits().outages().first().is_some_and(|outage| outage.effects == 1 && outage.url == silent)
    });
    let (settled, ()) = tokio::join!(sending, looking);
    assert_eq!(failure(&settled).cause, FailureCause::Timeout, "{}", detail(&settled));
    assert_eq!(detail(&settled).matches(&silent).count(), 1, "{}", detail(&settled));
    assert!(detail(&settled).contains("2s") && detail(&settled).contains("refused"), "{}", detail(&settled));
    assert!(dispatcher.waits().outages().is_empty(), "nobody waits any more");
}

#[tokio::test]
async fn an_effect_that_waits_for_a_silent_sandbox_leaves_its_slot_to_others() {
    let silent = nobody().await;
    let (sandbox, tool) = (Some(at(&[&silent])), Some(HostToolAt::Command("cat > /dev/null; echo 7".to_owned())));
    let patient =
        DispatchConfig { sandbox, host_tool: tool, patience: PATIENCE_DEFAULT, ..config(Path::new("/nonexistent")) };
    let dispatcher = dispatcher(patient);
    let workers = Arc::new(Semaphore::new(1));
    let (stop, nothing) = (CancellationToken::new(), |_| futures::future::ready(Err(NotJournaled)).boxed());
    let waiting = dispatcher.dispatch(code(Runtime::Native), &nothing, Slot::of(&workers), stop.clone());
    let others = async {
        eventually("the outage is seen", || dispatcher.waits().outages().len() == 1).await;
        for _ in 0..3 {
            let (token, other) = (CancellationToken::new(), Effect { run_id: "run-2".to_owned(), ..host_tool() });
            let settled = dispatcher.dispatch(other, &nothing, Slot::of(&workers), token).await;
            assert_eq!(output(&settled), "7");
        }
        assert_eq!(dispatcher.waits().outages().len(), 1, "the other one waits on");
        stop.cancel();
    };
    let (settled, ()) = tokio::join!(waiting, others);
    assert!(matches!(settled.ending, Ending::Canceled));
    assert_eq!(workers.available_permits(), 1);
}

#[tokio::test]
async fn an_effect_takes_its_slot_again_once_the_sandbox_answers() {
    let sandbox = FakeSandbox::playing([
        vec![Act::Refuse(Fault::new(Reason::Draining, "the service is draining"))],
        vec![completed("1")],
    ])
    .await;
    let url: &str = &sandbox.url;
    let patient =
        DispatchConfig { sandbox: Some(at(&[url])), patience: PATIENCE_DEFAULT, ..config(Path::new("/nonexistent")) };
    assert_eq!(output(&send(&dispatcher(patient), code(Runtime::Native)).await), "1");
    assert_eq!(sandbox.starts().len(), 2);
}

#[tokio::test]
async fn a_draining_sandbox_spills_over() {
    let draining = Act::Refuse(Fault::new(Reason::Draining, "the service is draining"));
    let (_, [a, b]) = FakeSandbox::two_playing([vec![draining], vec![completed("1")]]).await;
    assert_eq!(output(&send(&sandboxes(&[&a, &b]), code(Runtime::Native)).await), "1");
}

#[tokio::test]
async fn a_sandbox_that_says_the_time_is_over_ends_in_a_timeout() {
    let over = Fault::new(Reason::DeadlineExceeded, "the deadline passed in the queue");
    let sandbox = FakeSandbox::playing([vec![Act::Refuse(over)]]).await;
    let settled = send(&sandboxes(&[&sandbox.url]), code(Runtime::Wasm)).await;
    assert_eq!(failure(&settled).cause, FailureCause::Timeout);
}

#[tokio::test]
async fn a_sandbox_that_does_not_stop_in_time_is_told_to_and_what_it_says_then_is_late() {
    let answer = Outcome { output_json: "7".to_owned(), fuel_used: 4711, ..ended(OutcomeKind::Completed, "") };
    let sandbox = FakeSandbox::playing([vec![Act::AwaitCancelAndSay(answer)]]).await;
    let effect = || code(Runtime::Wasm);
    let dispatcher = sandboxes(&[&sandbox.url]);
    let settled = timed_out(&dispatcher, effect, |settled| settled.late.is_some()).await;
    let (output, usage) = *settled.late.unwrap();
    assert_eq!((output.text(), usage.fuel, settled.usage.fuel), ("7", 4711, 0));
    assert!(sandbox.log.all().contains(&"cancel".to_owned()), "it was told before the next attempt could begin");
}

#[tokio::test]
async fn a_refusal_is_told_and_not_tried_again() {
    let refusal = Fault::new(Reason::NativeDisabled, "native execution is off: start the sandbox with --allow-native");
    let sandbox = FakeSandbox::playing([vec![Act::Refuse(refusal)]]).await;
    let settled = send(&sandboxes(&[&sandbox.url]), code(Runtime::Native)).await;
    assert!(
        detail(&settled).contains("--allow-native") && detail(&settled).contains(&sandbox.url),
        "{}",
        detail(&settled)
    );
    assert_eq!(sandbox.starts().len(), 1);
}

#[tokio::test]
async fn a_pure_module_whose_sandbox_is_lost_runs_again() {
    let sandbox = FakeSandbox::playing([vec![Act::Vanish], vec![completed("1")]]).await;
    assert_eq!(output(&send(&sandboxes(&[&sandbox.url]), code(Runtime::Wasm)).await), "1");

    let sandbox = FakeSandbox::playing([vec![Act::Vanish]]).await;
    let sandboxes = Some(at(&[&sandbox.url]));
    let patient = DispatchConfig { sandbox: sandboxes, patience: GENEROUS, ..config(Path::new("/nonexistent")) };
    let settled = send(&dispatcher(patient), code(Runtime::Wasm)).await;
    assert_eq!(failure(&settled).cause, FailureCause::ExecutorError);
    assert!(detail(&settled).contains("lost"), "{}", detail(&settled));
    assert!(sandbox.starts().len() > 1);
}

#[tokio::test]
async fn a_module_with_brokered_calls_goes_on_from_its_durable_exchanges() {
    let log = Log::default();
    let scripts = [vec![Act::Exchange(0), Act::Vanish], vec![Act::Exchange(1), completed("1")]];
    let sandbox = FakeSandbox::playing_into(log.clone(), scripts).await;
    let broker = FakeBroker::granting("token-1").await;
    let (settled, kept) = send_journaled(&with_broker(&sandbox, &broker), code(Runtime::WasmIo), &log).await;
    assert_eq!(output(&settled), "1");
    assert_eq!(kept.iter().map(|exchange| exchange.ordinal).collect::<Vec<_>>(), [0, 1]);
    let again = &sandbox.starts()[1].recorded;
    assert_eq!((again.len(), again[0].request_digest.as_str()), (1, Digest::of(0_u32.to_be_bytes()).to_hex().as_str()));
}

#[tokio::test]
async fn what_must_not_run_twice_on_a_guess_ends_unknown() {
    let broker = FakeBroker::granting("token-1").await;
    let mut careful = code(Runtime::WasmIo);
    careful.on_dangling = OnDangling::Fail;
    for effect in [careful, code(Runtime::Native)] {
        let sandbox = FakeSandbox::playing([vec![Act::Vanish]]).await;
        let settled = send(&with_broker(&sandbox, &broker), effect).await;
        assert_eq!(failure(&settled).cause, FailureCause::Unknown);
        assert!(detail(&settled).contains("not known"), "{}", detail(&settled));
        assert_eq!(sandbox.starts().len(), 1);
    }
}

#[tokio::test]
async fn one_sandbox_that_answers_is_enough_to_be_ready() {
    let sandbox = FakeSandbox::playing([vec![completed("1")]]).await;
    let silent = nobody().await;
    assert_eq!(sandboxes(&[&silent, &sandbox.url]).ready().await, Ok(()));
    let unready = sandboxes(&[&silent]).ready().await.unwrap_err();
    assert!(unready[0].to_string().contains(&silent), "{unready:?}");
}

#[tokio::test]
async fn without_a_sandbox_the_text_says_what_to_configure() {
    let settled = send(&dispatcher(config(Path::new("/nonexistent"))), code(Runtime::Wasm)).await;
    assert!(detail(&settled).contains("--sandbox-url") && detail(&settled).contains("--sandbox-cmd"));
}

fn busy(after: Duration) -> Act {
    Act::Refuse(Fault::new(Reason::Busy, "every slot is taken").retry_after(after))
}

fn with_broker(sandbox: &FakeSandbox, broker: &FakeBroker) -> Dispatcher {
    let broker_urls = vec![broker.url.clone()];
    dispatcher(DispatchConfig { sandbox: Some(at(&[&sandbox.url])), broker_urls, ..config(Path::new("/nonexistent")) })
}

#[tokio::test]
async fn a_module_that_is_executed_again_waits_seconds_for_a_sandbox_that_is_gone_and_not_its_whole_timeout() {
    let sandbox = Some(at(&[&nobody().await]));
    let gone = dispatcher(DispatchConfig { sandbox, patience: PATIENCE_DEFAULT, ..config(Path::new("/nonexistent")) });
    let mut effect = code(Runtime::Wasm);
    effect.timeout = GENEROUS * 2;
    let settled = tokio::time::timeout(GENEROUS, gone.execute_again(effect)).await.expect("it gives up before");
    let Ending::InDoubt { why } = settled.ending else { panic!("{:?}", settled.ending) };
    assert!(why.contains("no sandbox could be reached within 5s"), "{why}");
}
