;; Makes the one outbound call {{REQUEST}}, with the address of the first blob that its input names in the place {{PLACE}} of
;; memory, and emits the answer. Traps when the input names none, or without an answer.
(module
  (import "areev" "emit" (func $emit (param i32 i32)))
  (import "areev" "fetch" (func $fetch (param i32 i32) (result i32)))
  (memory (export "memory") 1)
  (data (i32.const 1024) "{{REQUEST}}")
  (global $next (mut i32) (i32.const 16384))
  (func (export "alloc") (param $len i32) (result i32)
    (local $start i32)
    (local.set $start (global.get $next))
    (global.set $next (i32.add (global.get $next) (local.get $len)))
    (local.get $start))
  (func $named (param $at i32) (param $end i32) (result i32)
    (loop $on
      (if (i32.gt_u (i32.add (local.get $at) (i32.const 77)) (local.get $end)) (then unreachable))
      ;; "cas:"
      (if (i32.eq (i32.load (local.get $at)) (i32.const 0x3a736163)) (then (return (local.get $at))))
      (local.set $at (i32.add (local.get $at) (i32.const 1)))
      (br $on))
    unreachable)
  (func (export "run") (param $ptr i32) (param $len i32)
    (local $from i32) (local $done i32) (local $reply i32)
    (local.set $from (call $named (local.get $ptr) (i32.add (local.get $ptr) (local.get $len))))
    (loop $on
      (i32.store8 (i32.add (i32.const {{PLACE}}) (local.get $done))
        (i32.load8_u (i32.add (local.get $from) (local.get $done))))
      (local.set $done (i32.add (local.get $done) (i32.const 1)))
      (br_if $on (i32.lt_u (local.get $done) (i32.const 77))))
    (local.set $reply (call $fetch (i32.const 1024) (i32.const {{LENGTH}})))
    (if (i32.le_s (local.get $reply) (i32.const 0)) (then unreachable))
    (call $emit (i32.add (local.get $reply) (i32.const 4)) (i32.load (local.get $reply)))))
