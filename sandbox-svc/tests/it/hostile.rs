//! Guests that mean harm: each ends with a typed outcome, and the service goes on.

use proto::sandbox::v1::{Limits, OutcomeKind, Runtime, Start};

use sandbox_svc::{guest::FUEL_UNSEEN_MAX, limits::Limits as Bounds};

use crate::{
    guests,
    rig::{PATIENCE, Rig, assert_failed, assert_output, fuel, start, within_ms},
};

const PURE: Runtime = Runtime::Wasm32Areev;
const IO: Runtime = Runtime::Wasm32AreevIo;

const ECHO: &str = "(call $emit (local.get $p) (local.get $n))";

fn with_start(imports: &str, body: &str) -> String {
    guests::guest(imports, &format!("(func $begin {body}) (start $begin)"), ECHO)
}

#[tokio::test]
async fn w03_a_start_function_is_bounded_like_all_else() {
    let rig = Rig::new().await;
    let endless = with_start("", "(loop $again (br $again))");
    let outcome = rig.run_with(&endless, PURE, "null", |start| start.limits = fuel(100_000)).await;
    assert_failed(&outcome, OutcomeKind::OutOfFuel, "guest exhausted its fuel");
    assert_eq!(outcome.fuel_used, 100_000);
    let outcome = rig
        .run_with(&endless, PURE, "null", |start| {
            start.limits = fuel(u64::MAX);
            start.deadline = within_ms(100);
        })
        .await;
    assert_failed(&outcome, OutcomeKind::Timeout, "deadline");
    let trapping = with_start("", "unreachable");
    assert_failed(&rig.run(&trapping, PURE, "null").await, OutcomeKind::Trap, "unreachable");
    let fetch = r#"(import "areev" "fetch" (func $fetch (param i32 i32) (result i32)))"#;
    let fetching = with_start(fetch, "(drop (call $fetch (i32.const 0) (i32.const 1)))");
    assert_failed(
        &rig.run(&fetching, IO, "null").await,
        OutcomeKind::Abi,
        "a start function may not call areev::fetch",
    );
    assert_output(&rig.run(&guests::echo(), PURE, "1").await, "1");
}

#[tokio::test]
async fn w04_an_endless_guest_is_stopped_by_its_deadline_and_its_slot_is_free() {
    let rig = Rig::new().await;
    // Compiled first, so that all of the time is the guest's.
    rig.run_with(&guests::endless(), PURE, "null", |start| start.limits = fuel(1)).await;
    let outcome = rig
        .run_with(&guests::endless(), PURE, "null", |start| {
            start.limits = fuel(u64::MAX);
            start.deadline = within_ms(500);
        })
        .await;
    assert_failed(&outcome, OutcomeKind::Timeout, "guest ran into its deadline");
    // What it burned is told although it never called out: many millions in half a second, in whatever build.
    assert!(outcome.fuel_used > 3 * FUEL_UNSEEN_MAX, "{outcome:?}");
    assert_eq!(rig.sandbox.admission.running(), 0);
}

#[tokio::test]
async fn w05_big_fills_are_stopped_by_fuel_and_cheap_ones_by_the_deadline() {
    let rig = Rig::new().await;
    let fill = guests::pure("(loop $again (memory.fill (i32.const 0) (i32.const 1) (i32.const 262144)) (br $again))");
    let outcome = rig.run(&fill, PURE, "null").await;
    assert_failed(&outcome, OutcomeKind::OutOfFuel, "fuel");
    assert_eq!(outcome.fuel_used, Bounds::DEFAULT.fuel);
    let copy = guests::pure("(loop $again (memory.copy (i32.const 0) (i32.const 1) (i32.const 262143)) (br $again))");
    assert_failed(&rig.run(&copy, PURE, "null").await, OutcomeKind::OutOfFuel, "fuel");
    for fill in ["memory.fill (i32.const 0) (i32.const 1)", "memory.copy (i32.const 0) (i32.const 0)"] {
        let loops = format!("(loop $again ({fill} (i32.const 0x4000000)) (br $again))");
        let all = guests::pure(&format!("(drop (memory.grow (i32.const 1020))) {loops}"));
        let large = |start: &mut Start| start.limits = Some(Limits { max_pages: Some(1024), ..Limits::default() });
        let outcome = rig.run_with(&all, PURE, "null", large).await;
        assert_failed(&outcome, OutcomeKind::OutOfFuel, "fuel");
        let used = (outcome.fuel_used, outcome.peak_memory_bytes);
        assert_eq!(used, (Bounds::DEFAULT.fuel, 1024 * 65536), "{fill}: all fuel, all 64 MiB");
    }
    let table = "(table $t 9000 10000 funcref)";
    let tables = "(loop $again (table.fill $t (i32.const 0) (ref.null func) (i32.const 9000)) (br $again))";
    let outcome = rig.run(&guests::guest("", table, tables), PURE, "null").await;
    assert_failed(&outcome, OutcomeKind::OutOfFuel, "fuel");
    let cheap = [
        "(memory.fill (i32.const 0) (i32.const 1) (i32.const 0))",
        "(memory.copy (i32.const 0) (i32.const 1) (i32.const 0))",
        "(drop (memory.grow (i32.const 65536)))",
        "(drop (table.grow $t (ref.null func) (i32.const 0)))",
        "(drop (table.grow $t (ref.null func) (i32.const -1)))",
    ];
    for body in cheap {
        let wat = guests::guest("", table, &format!("(loop $again {body} (br $again))"));
        let outcome = rig
            .run_with(&wat, PURE, "null", |start| {
                start.limits = fuel(u64::MAX);
                start.deadline = within_ms(150);
            })
            .await;
        assert_failed(&outcome, OutcomeKind::Timeout, "deadline");
        assert!(outcome.fuel_used < Bounds::MAX.fuel / 2, "{body}: most of the fuel is left: {outcome:?}");
    }
    let outside = guests::pure("(memory.fill (i32.const 262143) (i32.const 1) (i32.const 2))");
    assert_failed(&rig.run(&outside, PURE, "null").await, OutcomeKind::Trap, "out of bounds memory access");
    let outside = guests::guest("", table, "(table.fill $t (i32.const 8999) (ref.null func) (i32.const 2))");
    assert_failed(&rig.run(&outside, PURE, "null").await, OutcomeKind::Trap, "out of bounds table access");
}

#[tokio::test]
async fn w06_memory_past_its_limit_is_refused_or_does_not_grow() {
    let rig = Rig::new().await;
    let pages = |max: u64| Some(Limits { max_pages: Some(max), ..Limits::default() });
    let outcome = rig.run_with(&guests::echo(), PURE, "null", |start| start.limits = pages(3)).await;
    assert_failed(&outcome, OutcomeKind::OutOfMemory, "4 pages of memory; this call may have 3");
    // Grows by one page until it is refused, then says how many it has.
    let grow = guests::pure(
        "(loop $again (br_if $again (i32.ne (memory.grow (i32.const 1)) (i32.const -1))))
         (i32.store8 (i32.const 0) (i32.add (i32.const 48) (memory.size)))
         (call $emit (i32.const 0) (i32.const 1))",
    );
    let outcome = rig.run_with(&grow, PURE, "null", |start| start.limits = pages(9)).await;
    assert_output(&outcome, "9");
    assert_eq!(outcome.peak_memory_bytes, 9 * 65536);
    let outcome = rig.run_with(&grow, PURE, "null", |start| start.limits = pages(4)).await;
    assert_output(&outcome, "4");
    // All of a 32-bit memory, what is missing to it, and numbers that are no count of pages: each answers -1 and changes nothing.
    let refused: String = [65_536_i64, 65_532, 65_537, -1, i64::from(i32::MIN)]
        .map(|pages| format!("(if (i32.ne (memory.grow (i32.const {pages})) (i32.const -1)) (then unreachable))"))
        .concat();
    let same = "(if (i32.ne (memory.size) (i32.const 4)) (then unreachable))";
    let outcome = rig.run(&guests::pure(&format!("{refused}{same}{ECHO}")), PURE, "7").await;
    assert_output(&outcome, "7");
    assert_eq!(outcome.peak_memory_bytes, 4 * 65536);
    for (memory, why) in [
        ("(memory 1) (memory 1)", "memories"),
        ("(memory 1 1 shared)", "threads"),
        ("(memory i64 1)", "memory64"),
        ("(memory 65536)", "65536 pages"),
        ("(memory 1 (pagesize 1))", "page size"),
    ] {
        let outcome = rig.run(&format!("(module {memory})"), PURE, "null").await;
        assert_failed(&outcome, OutcomeKind::ModuleRefused, why);
    }
}

#[tokio::test]
async fn w07_tables_past_their_limit_are_refused_or_do_not_grow() {
    let rig = Rig::new().await;
    let many = "(table 1 funcref)".repeat(100);
    for (table, why) in [("(table 4294967295 funcref)", "4294967295 table elements"), (many.as_str(), "100 tables")] {
        let outcome = rig.run(&guests::guest("", table, ""), PURE, "null").await;
        assert_failed(&outcome, OutcomeKind::ModuleRefused, why);
    }
    let grow = guests::guest(
        "",
        "(table $t 1 funcref)",
        "(if (i32.ne (table.grow $t (ref.null func) (i32.const -1)) (i32.const -1)) (then unreachable))
         (if (i32.ne (table.grow $t (ref.null func) (i32.const 10000)) (i32.const -1)) (then unreachable))
         (if (i32.ne (table.grow $t (ref.null func) (i32.const 9999)) (i32.const 1)) (then unreachable))
         (call $emit (local.get $p) (local.get $n))",
    );
    assert_output(&rig.run(&grow, PURE, "7").await, "7");
    let elements = format!("(module (table 1 funcref) (func $f) (elem declare func {}))", "$f ".repeat(100_001));
    assert_failed(&rig.run(&elements, PURE, "null").await, OutcomeKind::ModuleRefused, "elements in segments");
}

#[tokio::test]
async fn w08_recursion_ends_in_a_trap() {
    let rig = Rig::new().await;
    let plain = guests::guest("", "(func $f (call $f) (call $f))", "(call $f)");
    assert_failed(&rig.run(&plain, PURE, "null").await, OutcomeKind::Trap, "call stack exhausted");
    let outcome = rig.run(&guests::recursing_in_large_frames(), PURE, "null").await;
    assert_failed(&outcome, OutcomeKind::Trap, "call stack exhausted");
    // Half a megabyte of stack has room for fewer than eighty frames of eight kilobytes, each of some four thousand units.
    assert!(outcome.fuel_used < 80 * 5_000, "the frames are large: {outcome:?}");
    assert_output(&rig.run(&guests::echo(), PURE, "1").await, "1");
}

#[tokio::test]
async fn w08_an_alloc_that_calls_out_gets_nothing_and_cannot_recurse_through_the_host() {
    let rig = Rig::new().await;
    // Each call to the host has `alloc` called for the answer, which calls the host again; what it gets is counted.
    let nested = r#"(module (import "areev" "emit" (func $emit (param i32 i32)))
        (import "areev" "fetch" (func $fetch (param i32 i32) (result i32)))
        (memory (export "memory") 1) (data (i32.const 16) "{\22url\22:\22https://x\22}")
        (global $answered (mut i32) (i32.const 0))
        (func (export "alloc") (param i32) (result i32)
          (if (i32.ne (call $fetch (i32.const 16) (i32.const 19)) (i32.const -1))
            (then (global.set $answered (i32.const 1))))
          i32.const 1024)
        (func (export "run") (param i32 i32)
          (if (i32.ne (call $fetch (i32.const 16) (i32.const 19)) (i32.const 1024)) (then unreachable))
          (i32.store8 (i32.const 0) (i32.add (i32.const 48) (global.get $answered)))
          (call $emit (i32.const 0) (i32.const 1))))"#;
    assert_output(&rig.run(nested, IO, "1").await, "0");
    let endless = guests::io("", "").replace("(local.get $p))", "(drop (call $alloc (local.get $n))) (local.get $p))");
    assert_failed(&rig.run(&endless, IO, "1").await, OutcomeKind::Trap, "call stack exhausted");
}

#[tokio::test]
async fn w09_a_fetch_with_a_bad_range_or_a_failing_alloc_answers_minus_one() {
    let rig = Rig::new().await;
    let request = r#"(data (i32.const 16) "{\22url\22:\22https://x\22}")"#;
    let check = |call: &str| format!("(if (i32.ne {call} (i32.const -1)) (then unreachable))");
    let ranges = [
        "(i32.const -1) (i32.const 2)",
        "(i32.const 0) (i32.const -1)",
        "(i32.const 262143) (i32.const 2)",
        "(i32.const 2147483647) (i32.const 2147483647)",
    ];
    let body: String = ranges.iter().map(|range| check(&format!("(call $fetch {range})"))).collect();
    let wat = guests::io("", &(body + "(call $emit (local.get $p) (local.get $n))"));
    assert_output(&rig.run(&wat, IO, "1").await, "1");
    // The first alloc is for the input; the next ones are for replies.
    for second in
        ["i32.const 0", "i32.const -5", "i32.const 65530", "unreachable", "(call $fetch (i32.const 16) (i32.const 19))"]
    {
        let wat = format!(
            r#"(module (import "areev" "emit" (func $emit (param i32 i32)))
              (import "areev" "fetch" (func $fetch (param i32 i32) (result i32)))
              (memory (export "memory") 1) {request} (global $n (mut i32) (i32.const 0))
              (func (export "alloc") (param i32) (result i32)
                (global.set $n (i32.add (global.get $n) (i32.const 1)))
                (if (result i32) (i32.eq (global.get $n) (i32.const 1)) (then i32.const 512) (else {second})))
              (func (export "run") (param i32 i32) {} (call $emit (local.get 0) (local.get 1))))"#,
            check("(call $fetch (i32.const 16) (i32.const 19))")
        );
        assert_output(&rig.run(&wat, IO, "1").await, "1");
    }
}

#[tokio::test]
async fn w09_a_request_of_no_bytes_or_of_no_sense_is_answered_with_an_error() {
    let rig = Rig::new().await;
    for request in ["", "{", "[]", "{\"url\":1}", "{\"url\":\"https://x\",\"verb\":\"GET\"}"] {
        let outcome = rig.run(&guests::fetches(&[request]), IO, "null").await;
        assert_eq!(outcome.kind(), OutcomeKind::Completed, "{outcome:?}");
        assert!(outcome.output_json.contains("\"error\":\"the fetch request is malformed"), "{}", outcome.output_json);
        assert_eq!(outcome.calls, 0);
    }
}

#[tokio::test]
async fn w13_bytes_that_are_no_core_module_are_refused_and_never_a_panic() {
    let rig = Rig::new().await;
    let good = wat::parse_str(guests::echo()).unwrap();
    let mut cases: Vec<Vec<u8>> = vec![
        b"".to_vec(),
        b"\0asm".to_vec(),
        b"\0asm\x02\0\0\0".to_vec(),
        b"\0asm\x0d\0\x01\0".to_vec(),
        b"\x7fELF\x02\x01\x01\0".to_vec(),
        b" (module)".to_vec(),
        [good.as_slice(), &[0]].concat(),
        [good.as_slice(), &[1, 0xff, 0xff, 0xff, 0xff, 0xff, 0x0f]].concat(),
    ];
    cases.extend((8..good.len()).map(|end| good[..end].to_vec()));
    // Overlong LEB in the length of the first section.
    cases.push([&good[..9], &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01], &good[10..]].concat());
    for bytes in cases {
        let uri = rig.put(&bytes).await;
        let (outcome, _) = rig.execute(start(&uri, PURE, "null")).await.unwrap();
        // Cut where its last section, the names, begins, the module is whole.
        let whole = good.starts_with(&bytes) && good[bytes.len()] == 0;
        let refused = matches!(outcome.kind(), OutcomeKind::ModuleRefused | OutcomeKind::Abi);
        assert!(refused || whole, "{}: {outcome:?}", bytes.escape_ascii());
    }
    for text in [&b" (module)"[..], b";; a comment\n(module)"] {
        let (outcome, _) = rig.execute(start(&rig.put(text).await, PURE, "null")).await.unwrap();
        assert_failed(&outcome, OutcomeKind::ModuleRefused, "text format");
    }
}

#[tokio::test]
async fn w13_flipped_bits_never_bring_the_service_down() {
    let rig = Rig::new().await;
    let good = wat::parse_str(guests::fetches(&["{\"url\":\"https://x\"}"])).unwrap();
    for position in 0..good.len() {
        let mut bytes = good.clone();
        bytes[position] ^= 1 << (position % 8);
        let uri = rig.put(&bytes).await;
        let mut message = start(&uri, IO, "null");
        (message.limits, message.deadline) = (fuel(1_000_000), within_ms(PATIENCE.as_millis() as u64));
        rig.execute(message).await.unwrap();
    }
    assert_output(&rig.run(&guests::echo(), PURE, "1").await, "1");
}

#[tokio::test]
async fn compile_bombs_are_refused_before_anything_compiles() {
    let rig = Rig::new().await;
    let functions = format!("(module {})", "(func)".repeat(20_001));
    let body = format!("(module (func {}))", "(drop (i32.const 1))".repeat(30_000));
    let locals = format!("(module (func {}))", "(local i32)".repeat(5_001));
    let targets = format!("(module (func (block $a (br_table {} (i32.const 0)))))", "$a ".repeat(50_000));
    let tables = format!(
        "(module {})",
        format!("(func (block $a (br_table {} (i32.const 0))))", "$a ".repeat(60_000)).repeat(2)
    );
    for (wat, why) in [
        (functions, "20001 functions"),
        (body, "bytes in one function"),
        (locals, "locals in one function"),
        (tables, "br_table targets"),
    ] {
        assert_failed(&rig.run(&wat, PURE, "null").await, OutcomeKind::ModuleRefused, why);
    }
    assert_failed(&rig.run(&targets, PURE, "null").await, OutcomeKind::Abi, "does not export");
    assert_eq!(rig.sandbox.modules.compilations(), 0);
}

#[tokio::test]
async fn w18_the_same_input_gives_the_same_bytes_and_the_same_fuel_on_every_replica() {
    let (one, two) = (Rig::new().await, Rig::new().await);
    let first = one.run(&guests::floats(), PURE, "null").await;
    assert_output(&first, "\"7fc000007fc00000800000007fc00000\"");
    for rig in [&one, &two] {
        for _ in 0..100 {
            let again = rig.run(&guests::floats(), PURE, "null").await;
            assert_eq!((&again.output_json, again.fuel_used), (&first.output_json, first.fuel_used));
        }
    }
}

#[tokio::test]
async fn w19_every_trap_has_a_readable_text_without_host_addresses() {
    let rig = Rig::new().await;
    let cases = [
        ("unreachable", "unreachable"),
        ("(drop (i32.div_s (i32.const 1) (i32.const 0)))", "integer divide by zero"),
        ("(drop (i32.load (i32.const 262144)))", "out of bounds memory access"),
        ("(call_indirect $t (type $v) (i32.const 0))", "indirect call type mismatch"),
        ("(call_indirect $t (type $v) (i32.const 1))", "uninitialized element"),
        ("(call_indirect $t (type $v) (i32.const 9))", "out of bounds table access"),
        ("(drop (i32.trunc_f32_s (f32.const nan)))", "invalid conversion to integer"),
        ("(drop (i32.div_s (i32.const 0x80000000) (i32.const -1)))", "integer overflow"),
    ];
    for (body, text) in cases {
        let more = "(type $v (func)) (table $t 2 funcref) (elem (i32.const 0) func $inner) (func $inner (param i32))";
        let outcome = rig.run(&guests::guest("", more, body), PURE, "null").await;
        assert_failed(&outcome, OutcomeKind::Trap, text);
        assert_failed(&outcome, OutcomeKind::Trap, "guest trapped: ");
        let long =
            outcome.text.split("0x").skip(1).any(|rest| rest.chars().take_while(char::is_ascii_hexdigit).count() > 6);
        assert!(!long, "a host address in {:?}", outcome.text);
    }
}

#[tokio::test]
async fn w20_fuel_is_exact_to_the_unit() {
    let rig = Rig::new().await;
    let wat = guests::pure(
        "(local $i i32) (loop $again (local.set $i (i32.add (local.get $i) (i32.const 1)))
           (br_if $again (i32.lt_u (local.get $i) (i32.const 50))))
         (call $emit (local.get $p) (local.get $n))",
    );
    let used = rig.run(&wat, PURE, "1").await.fuel_used;
    let exact = rig.run_with(&wat, PURE, "1", |start| start.limits = fuel(used)).await;
    assert_output(&exact, "1");
    assert_eq!(exact.fuel_used, used);
    for less in [used - 1, used - 2, used / 2, 1, 0] {
        let short = rig.run_with(&wat, PURE, "1", |start| start.limits = fuel(less)).await;
        assert_failed(&short, OutcomeKind::OutOfFuel, "guest exhausted its fuel");
        assert_eq!(short.fuel_used, less);
    }
}

#[tokio::test]
async fn moving_bytes_in_host_calls_costs_fuel() {
    let rig = Rig::new().await;
    let emit = |bytes: u32| {
        guests::pure(&format!(
            "(i32.store8 (i32.const 0) (i32.const 49)) (memory.fill (i32.const 1) (i32.const 32) (i32.const 200000)) (call $emit (i32.const 0) (i32.const {bytes}))"
        ))
    };
    let (small, large) = (rig.run(&emit(1), PURE, "1").await, rig.run(&emit(160_001), PURE, "1").await);
    assert_eq!(large.fuel_used - small.fuel_used, 10_000);
}
