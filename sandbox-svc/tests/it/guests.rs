//! Guests as text: a bump allocator, a memory, and whatever `run` a test needs.

/// A pure guest whose `run` (parameters `$p` and `$n`: the input) is the given body.
pub fn pure(run: &str) -> String {
    guest("", "", run)
}

/// A guest that may fetch; `more` is put before `run`, for data and functions of its own.
pub fn io(more: &str, run: &str) -> String {
    guest(r#"(import "areev" "fetch" (func $fetch (param i32 i32) (result i32)))"#, more, run)
}

/// A guest with further imports and members.
pub fn guest(imports: &str, more: &str, run: &str) -> String {
    format!(
        r#"(module
  (import "areev" "emit" (func $emit (param i32 i32)))
  {imports}
  (memory (export "memory") 4)
  (global $next (mut i32) (i32.const 65536))
  (func $alloc (export "alloc") (param $n i32) (result i32)
    (local $p i32)
    (local.set $p (global.get $next))
    (global.set $next (i32.add (global.get $next) (local.get $n)))
    (local.get $p))
  {more}
  (func (export "run") (param $p i32) (param $n i32) {run}))"#
    )
}

/// Emits its input.
pub fn echo() -> String {
    pure("(call $emit (local.get $p) (local.get $n))")
}

/// Emits its input after some tens of milliseconds of work.
pub fn slow_echo() -> String {
    pure(
        "(local $i i32)
         (loop $again
           (local.set $i (i32.add (local.get $i) (i32.const 1)))
           (br_if $again (i32.lt_u (local.get $i) (i32.const 4000000))))
         (call $emit (local.get $p) (local.get $n))",
    )
}

/// Loops for ever.
pub fn endless() -> String {
    pure("(loop $again (br $again))")
}

/// Makes each of the requests in turn and emits the last reply.
pub fn fetches(requests: &[&str]) -> String {
    let (mut data, mut run) = (String::new(), "(local $r i32)".to_owned());
    for (number, request) in requests.iter().enumerate() {
        let at = 1024 * (number + 1);
        data += &format!("(data (i32.const {at}) \"{}\")", request.escape_default());
        run += &format!("(local.set $r (call $fetch (i32.const {at}) (i32.const {})))", request.len());
    }
    io(&data, &(run + "(call $emit (i32.add (local.get $r) (i32.const 4)) (i32.load (local.get $r)))"))
}

/// Reads the blob that its input names, twice, and emits the last reply; `{"none":-1}` when the host has none.
pub fn reads_blob() -> String {
    let import = r#"(import "areev" "blob_get" (func $blob_get (param i32 i32) (result i32)))"#;
    // The input is a JSON string: its quotes are left out.
    let get = "(call $blob_get (i32.add (local.get $p) (i32.const 1)) (i32.sub (local.get $n) (i32.const 2)))";
    let run = format!(
        "(local $r i32) (drop {get}) (local.set $r {get})
         (if (i32.le_s (local.get $r) (i32.const 0))
           (then (call $emit (i32.const 1024) (i32.const 11)))
           (else (call $emit (i32.add (local.get $r) (i32.const 4)) (i32.load (local.get $r)))))"
    );
    guest(import, r#"(data (i32.const 1024) "{\"none\":-1}")"#, &run)
}

/// Emits a constant text.
pub fn says(text: &str) -> String {
    let data = format!("(data (i32.const 1024) \"{}\")", text.escape_default());
    guest("", &data, &format!("(call $emit (i32.const 1024) (i32.const {}))", text.len()))
}

/// Says what becomes of NaNs with payloads, and the minima and maxima of signed zeros: bits in hexadecimal.
pub fn floats() -> String {
    guest(
        "",
        r#"(global $at (mut i32) (i32.const 1))
           (func $digit (param i32)
             (i32.store8 (global.get $at) (i32.add (local.get 0)
               (select (i32.const 48) (i32.const 87) (i32.lt_u (local.get 0) (i32.const 10)))))
             (global.set $at (i32.add (global.get $at) (i32.const 1))))
           (func $hex (param i32) (local i32)
             (local.set 1 (i32.const 28))
             (loop $more
               (call $digit (i32.and (i32.shr_u (local.get 0) (local.get 1)) (i32.const 15)))
               (local.set 1 (i32.sub (local.get 1) (i32.const 4)))
               (br_if $more (i32.ge_s (local.get 1) (i32.const 0)))))"#,
        r#"(i32.store8 (i32.const 0) (i32.const 34))
           (call $hex (i32.reinterpret_f32 (f32.div (f32.const 0) (f32.const -0))))
           (call $hex (i32.reinterpret_f32 (f32.add (f32.reinterpret_i32 (i32.const 0x7fa00001)) (f32.const 1))))
           (call $hex (i32.reinterpret_f32 (f32.min (f32.const 0) (f32.const -0))))
           (call $hex (i32.reinterpret_f32 (f32.max (f32.const nan) (f32.const 1))))
           (i32.store8 (global.get $at) (i32.const 34))
           (call $emit (i32.const 0) (i32.add (global.get $at) (i32.const 1)))"#,
    )
}

/// Mixes its input's bytes for some thousand rounds, by integers and floats, and says the sum.
pub fn mixing() -> String {
    pure(
        "(local $i i32) (local $h i64) (local $f f64)
         (local.set $f (f64.const 0.1))
         (loop $again
           (local.set $h (i64.add
             (i64.mul (i64.rotl (local.get $h) (i64.const 5)) (i64.const 0x9e3779b97f4a7c15))
             (i64.load8_u (i32.add (local.get $p) (i32.rem_u (local.get $i) (local.get $n))))))
           (local.set $f (f64.add (f64.sqrt (f64.mul (local.get $f) (f64.const 1.1))) (f64.const 0.3)))
           (local.set $h (i64.xor (local.get $h) (i64.reinterpret_f64 (local.get $f))))
           (local.set $i (i32.add (local.get $i) (i32.const 1)))
           (br_if $again (i32.lt_u (local.get $i) (i32.const 5000))))
         ;; Sixteen letters from a to p, in quotes.
         (i32.store8 (i32.const 0) (i32.const 34))
         (local.set $i (i32.const 1))
         (loop $letter
           (i32.store8 (local.get $i) (i32.add (i32.const 97) (i32.wrap_i64 (i64.and (local.get $h) (i64.const 15)))))
           (local.set $h (i64.shr_u (local.get $h) (i64.const 4)))
           (local.set $i (i32.add (local.get $i) (i32.const 1)))
           (br_if $letter (i32.lt_u (local.get $i) (i32.const 17))))
         (i32.store8 (i32.const 17) (i32.const 34))
         (call $emit (i32.const 0) (i32.const 18))",
    )
}

/// Grows its memory until it may not any more, and says that its new pages were zero.
pub fn growing() -> String {
    pure(
        "(local $at i32)
         (loop $again (br_if $again (i32.ne (memory.grow (i32.const 1)) (i32.const -1))))
         (local.set $at (i32.const 262144))
         (loop $look
           (if (i32.load (local.get $at)) (then unreachable))
           (i32.store (local.get $at) (i32.const 7))
           (local.set $at (i32.add (local.get $at) (i32.const 4096)))
           (br_if $look (i32.lt_u (local.get $at) (i32.mul (memory.size) (i32.const 65536)))))
         (i32.store8 (i32.const 0) (i32.const 49))
         (call $emit (i32.const 0) (i32.const 1))",
    )
}

/// Calls itself without end; each call has a thousand values that live across the next one: eight kilobytes of stack.
pub fn recursing_in_large_frames() -> String {
    let each = |text: fn(u32) -> String| (0..1000).map(text).collect::<String>();
    let load = each(|n| format!("(local.set {n} (i64.load offset={} (i32.const 0)))", 8 * n));
    let keep = each(|n| format!("(global.set $kept (i64.xor (global.get $kept) (local.get {n})))"));
    let more = format!(
        "(global $kept (mut i64) (i64.const 0)) (func $f {} {load} (call $f) {keep})",
        "(local i64)".repeat(1000)
    );
    guest("", &more, "(call $f)")
}
