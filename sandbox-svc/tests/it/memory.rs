//! Memory: whatever a module asks for, the process stays near what it was.

use content_digest::Digest;
use proto::sandbox::v1::{OutcomeKind, Runtime, Start};

use crate::{
    attacks, guests,
    process::Process,
    rig::{Rig, assert_output, fuel, start, within_ms},
};

const PURE: Runtime = Runtime::Wasm32Areev;
const IO: Runtime = Runtime::Wasm32AreevIo;

/// What one call may have: the default of 256 pages.
const LIMIT_BYTES: u64 = 256 * 65_536;
/// What the service takes beside the guest's own memory: copies of an output of 8 MiB on its way through the wire, fibers,
/// tables, the allocator's spare room.
const OVERHEAD_BYTES: u64 = 96 * 1024 * 1024;

async fn begun(process: &Process) -> u64 {
    let uri = process.caller.put(&wat::parse_str(guests::echo()).unwrap()).await;
    for _ in 0..20 {
        let (outcome, _) = process.caller.execute(start(&uri, PURE, "[1]")).await.unwrap();
        assert_output(&outcome, "[1]");
    }
    process.resident().0
}

/// How often each is tried.
const TRIES: usize = 3;

#[tokio::test(flavor = "multi_thread")]
async fn w01_to_w20_memory_stays_flat_whatever_a_module_does() {
    let directory = tempfile::tempdir().unwrap();
    let process = Process::start(directory.path(), &["--max-concurrent", "4"]).await;
    let before = begun(&process).await;
    for attack in attacks::all() {
        let uri = process.caller.put(&attack.module).await;
        // Compiled first, so that all of the time is the guest's.
        process.caller.execute(Start { limits: fuel(1), ..start(&uri, attack.runtime, "null") }).await.unwrap();
        let endless = attack.ends.contains(&OutcomeKind::Timeout);
        for _ in 0..TRIES {
            let deadline = if endless { within_ms(200) } else { None };
            let message = Start { limits: fuel(30_000_000), deadline, ..start(&uri, attack.runtime, "null") };
            let (outcome, _) = process.caller.execute(message).await.unwrap();
            assert!(attack.ends.contains(&outcome.kind()), "{}: {outcome:?}", attack.name);
            assert!(outcome.peak_memory_bytes <= LIMIT_BYTES, "{}: {outcome:?}", attack.name);
        }
        let (now, peak) = process.resident();
        assert!(
            peak <= before + LIMIT_BYTES + OVERHEAD_BYTES,
            "{}: {before} before, {now} now, {peak} at its highest",
            attack.name
        );
    }
    assert!(begun(&process).await <= before + OVERHEAD_BYTES, "what was taken is given back");
}

/// Uploads under another digest, and calls past all places that are left in the middle.
#[tokio::test(flavor = "multi_thread")]
async fn w14_w17_memory_stays_flat_whatever_a_caller_does() {
    let directory = tempfile::tempdir().unwrap();
    let process = Process::start(directory.path(), &["--max-concurrent", "4", "--queue", "4"]).await;
    let before = begun(&process).await;
    let (bytes, wrong) = (vec![0; 8 << 20], Digest::of("other bytes").to_uri());
    for _ in 0..30 {
        process.caller.put_as(&wrong, &bytes).await.unwrap_err();
    }
    let uri = process.caller.put(&wat::parse_str(guests::endless()).unwrap()).await;
    for _ in 0..1_000 {
        let call = process.caller.begin(Start { limits: fuel(u64::MAX), ..start(&uri, PURE, "null") }).await;
        drop(call);
    }
    let (now, peak) = process.resident();
    assert!(peak <= before + 4 * LIMIT_BYTES + OVERHEAD_BYTES, "{before} before, {now} now, {peak} at its highest");
    assert!(begun(&process).await <= before + OVERHEAD_BYTES, "what was taken is given back");
}

#[tokio::test(flavor = "multi_thread")]
async fn w09_nothing_is_reserved_for_a_range_before_it_is_known_to_lie_in_memory() {
    let directory = tempfile::tempdir().unwrap();
    let process = Process::start(directory.path(), &["--max-concurrent", "4"]).await;
    begun(&process).await;
    let before = process.virtual_peak();
    // Half the address space, all of it, and a sum that wraps: as a request and as an output, a thousand times each.
    for range in
        ["(i32.const 0) (i32.const 2147483647)", "(i32.const 0) (i32.const -1)", "(i32.const -1) (i32.const -1)"]
    {
        let fetch = guests::io(
            "",
            &format!(
                "(local $i i32) (loop $again (drop (call $fetch {range}))
              (local.set $i (i32.add (local.get $i) (i32.const 1)))
              (br_if $again (i32.lt_u (local.get $i) (i32.const 1000)))) (call $emit (local.get $p) (local.get $n))"
            ),
        );
        let uri = process.caller.put(&wat::parse_str(&fetch).unwrap()).await;
        assert_output(&process.caller.execute(start(&uri, IO, "1")).await.unwrap().0, "1");
        let emit = guests::pure(&format!("(call $emit {range})"));
        let uri = process.caller.put(&wat::parse_str(&emit).unwrap()).await;
        let (outcome, _) = process.caller.execute(start(&uri, PURE, "1")).await.unwrap();
        assert_eq!(outcome.kind(), OutcomeKind::OutputTooLarge, "{outcome:?}");
    }
    let grown = process.virtual_peak() - before;
    assert!(grown < 1 << 30, "{grown} bytes were reserved");
}

/// Fills all that it has with ones: memory, table, globals, locals and stack.
fn dirty() -> String {
    let more = "(table $t 9000 9000 funcref) (elem declare func $fill)
        (global $a (mut i64) (i64.const 0)) (global $b (mut i64) (i64.const 0))
        (func $fill (param i32) (local i64 i64 i64 i64)
          (local.set 1 (i64.const -1)) (local.set 2 (i64.const -1)) (local.set 3 (i64.const -1)) (local.set 4 (i64.const -1))
          (if (local.get 0) (then (call $fill (i32.sub (local.get 0) (i32.const 1)))))
          (global.set $a (i64.or (local.get 1) (i64.or (local.get 2) (i64.or (local.get 3) (local.get 4))))))";
    guests::guest(
        "",
        more,
        "(loop $again (br_if $again (i32.ne (memory.grow (i32.const 1)) (i32.const -1))))
         (memory.fill (i32.const 0) (i32.const 255) (i32.mul (memory.size) (i32.const 65536)))
         (table.fill $t (i32.const 0) (ref.func $fill) (i32.const 9000))
         (global.set $b (i64.const -1)) (call $fill (i32.const 1000))
         (i32.store8 (i32.const 0) (i32.const 49)) (call $emit (i32.const 0) (i32.const 1))",
    )
}

/// Says 0 when all that it has is as it is declared, and traps otherwise.
fn looks_for_dirt() -> String {
    let more = "(table $t 9000 9000 funcref)
        (global $a (mut i64) (i64.const 0)) (global $b (mut i64) (i64.const 0))
        (func $clean (param i32) (local i64 i64 i64 i64)
          (if (i32.eqz (i64.eqz (i64.or (local.get 1) (i64.or (local.get 2) (i64.or (local.get 3) (local.get 4))))))
            (then unreachable))
          (if (local.get 0) (then (call $clean (i32.sub (local.get 0) (i32.const 1))))))";
    guests::guest(
        "",
        more,
        "(local $at i32)
         (loop $again (br_if $again (i32.ne (memory.grow (i32.const 1)) (i32.const -1))))
         ;; Its input was written at 65536; nothing else was.
         (i64.store (i32.const 65536) (i64.const 0))
         (loop $look
           (if (i32.eqz (i64.eqz (i64.load (local.get $at)))) (then unreachable))
           (local.set $at (i32.add (local.get $at) (i32.const 8)))
           (br_if $look (i32.lt_u (local.get $at) (i32.mul (memory.size) (i32.const 65536)))))
         (local.set $at (i32.const 0))
         (loop $look
           (if (i32.eqz (ref.is_null (table.get $t (local.get $at)))) (then unreachable))
           (local.set $at (i32.add (local.get $at) (i32.const 1)))
           (br_if $look (i32.lt_u (local.get $at) (i32.const 9000))))
         (if (i32.eqz (i64.eqz (i64.or (global.get $a) (global.get $b)))) (then unreachable))
         (call $clean (i32.const 1000))
         (i32.store8 (i32.const 0) (i32.const 48)) (call $emit (i32.const 0) (i32.const 1))",
    )
}

#[tokio::test]
async fn a_slot_is_clean_whatever_the_guest_before_left_in_it() {
    let rig = Rig::with(|config| config.capacity.slots = 1).await;
    for _ in 0..20 {
        assert_output(&rig.run(&dirty(), PURE, "1").await, "1");
        assert_output(&rig.run(&looks_for_dirt(), PURE, "1").await, "0");
    }
}
