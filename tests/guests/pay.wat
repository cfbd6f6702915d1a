;; Posts the `total_cents` of its input to {{ORIGIN}}/payments with the credential `bank`, and emits the answer.
;; The module names the credential; it never sees the secret.
(module
  (import "areev" "emit" (func $emit (param i32 i32)))
  (import "areev" "fetch" (func $fetch (param i32 i32) (result i32)))
  (memory (export "memory") 2)
  (data (i32.const 16) "\"total_c")
  (data (i32.const 32) "}\"}")
  ;; Ends with a zero byte.
  (data (i32.const 256)
    "{\"url\":\"{{ORIGIN}}/payments\",\"method\":\"POST\",\"credential\":\"bank\",\"body\":\"{\\\"total_cents\\\":\00")
  (global $next (mut i32) (i32.const 8192))
  (func $alloc (export "alloc") (param $len i32) (result i32)
    (local $start i32)
    (local.set $start (global.get $next))
    (global.set $next (i32.add (global.get $next) (local.get $len)))
    (local.get $start))
  (func $total (param $at i32) (param $end i32) (result i32)
    (loop $search
      (if (i32.gt_u (i32.add (local.get $at) (i32.const 15)) (local.get $end)) (then unreachable))
      (if (i64.eq (i64.load (local.get $at)) (i64.load (i32.const 16)))
        (then (return (i32.add (local.get $at) (i32.const 14)))))
      (local.set $at (i32.add (local.get $at) (i32.const 1)))
      (br $search))
    unreachable)
  (func (export "run") (param $ptr i32) (param $len i32)
    (local $from i32) (local $out i32) (local $byte i32) (local $reply i32)
    (local.set $from (call $total (local.get $ptr) (i32.add (local.get $ptr) (local.get $len))))
    ;; The request goes behind its constant start, in place of the zero byte.
    (local.set $out (i32.const 256))
    (loop $end_of_start
      (if (i32.load8_u (local.get $out))
        (then (local.set $out (i32.add (local.get $out) (i32.const 1))) (br $end_of_start))))
    (block $copied
      (loop $digits
        (local.set $byte (i32.load8_u (local.get $from)))
        (br_if $copied (i32.gt_u (i32.sub (local.get $byte) (i32.const 48)) (i32.const 9)))
        (i32.store8 (local.get $out) (local.get $byte))
        (local.set $from (i32.add (local.get $from) (i32.const 1)))
        (local.set $out (i32.add (local.get $out) (i32.const 1)))
        (br $digits)))
    (i32.store16 (local.get $out) (i32.load16_u (i32.const 32)))
    (i32.store8 (i32.add (local.get $out) (i32.const 2)) (i32.load8_u (i32.const 34)))
    (local.set $reply
      (call $fetch (i32.const 256) (i32.sub (i32.add (local.get $out) (i32.const 3)) (i32.const 256))))
    (if (i32.le_s (local.get $reply) (i32.const 0)) (then unreachable))
    (call $emit (i32.add (local.get $reply) (i32.const 4)) (i32.load (local.get $reply)))))
