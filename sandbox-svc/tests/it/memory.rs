//! Memory: whatever a module asks for, the process stays near what it was.

use proto::sandbox::v1::{OutcomeKind, Runtime, Start};

use crate::{
    guests,
    process::Process,
    rig::{assert_output, fuel, start, within_ms},
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

fn greedy() -> Vec<(&'static str, String)> {
    let grow = "(loop $again (br_if $again (i32.ne (memory.grow (i32.const 1)) (i32.const -1))))
        (memory.fill (i32.const 0) (i32.const 49) (i32.mul (memory.size) (i32.const 65536)))";
    let emit = "(call $emit (i32.const 0) (i32.const 8388608))";
    let begin = |body: &str| guests::guest("", &format!("(func $begin {body}) (start $begin)"), "");
    vec![
        ("a table of 200 million elements", guests::guest("", "(table 200000000 funcref)", "")),
        ("a table that grows for ever", {
            let grow = "(loop $again (drop (table.grow $t (ref.null func) (i32.const 1000))) (br $again))";
            guests::guest("", "(table $t 1 funcref)", grow)
        }),
        ("a second memory", guests::guest("", "(memory 100)", "")),
        ("1 GiB of memory at the start", "(module (memory (export \"memory\") 16384))".to_owned()),
        ("all of a 32-bit memory", "(module (memory (export \"memory\") 65536))".to_owned()),
        ("a start function that grows its memory", begin(grow)),
        ("a start function that grows by everything", begin("(drop (memory.grow (i32.const 65535)))")),
        ("a memory filled to its limit, again and again", guests::pure(&format!("(loop $again {grow} (br $again))"))),
        ("the greatest output", guests::pure(&format!("{grow} (i32.store8 (i32.const 0) (i32.const 49)) {emit}"))),
        ("an output of one byte too many", guests::pure("(call $emit (i32.const 0) (i32.const 8388609))")),
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn w06_w07_memory_stays_flat_whatever_a_module_asks_for() {
    let directory = tempfile::tempdir().unwrap();
    let process = Process::start(directory.path(), &["--max-concurrent", "4"]).await;
    let before = begun(&process).await;
    for (name, wat) in greedy() {
        let uri = process.caller.put(&wat::parse_str(&wat).unwrap()).await;
        for _ in 0..10 {
            let limited = Start { limits: fuel(30_000_000), deadline: within_ms(2_000), ..start(&uri, PURE, "null") };
            let (outcome, _) = process.caller.execute(limited).await.unwrap();
            assert!(outcome.peak_memory_bytes <= LIMIT_BYTES, "{name}: {outcome:?}");
        }
        let (now, peak) = process.resident();
        assert!(
            peak <= before + LIMIT_BYTES + OVERHEAD_BYTES,
            "{name}: {before} before, {now} now, {peak} at its highest"
        );
    }
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
