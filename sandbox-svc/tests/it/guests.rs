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
           (br_if $again (i32.lt_u (local.get $i) (i32.const 20000000))))
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

/// Emits a constant text.
pub fn says(text: &str) -> String {
    let data = format!("(data (i32.const 1024) \"{}\")", text.escape_default());
    guest("", &data, &format!("(call $emit (i32.const 1024) (i32.const {}))", text.len()))
}
