;; Makes the outbound calls {{CALLS}}, one after the other, and emits the last answer. {{REQUESTS}} are their texts.
(module
  (import "areev" "emit" (func $emit (param i32 i32)))
  (import "areev" "fetch" (func $fetch (param i32 i32) (result i32)))
  (memory (export "memory") 1)
  {{REQUESTS}}
  (global $next (mut i32) (i32.const 16384))
  (func (export "alloc") (param $len i32) (result i32)
    (local $start i32) (local $pages i32)
    (local.set $start (global.get $next))
    (global.set $next (i32.add (global.get $next) (local.get $len)))
    (local.set $pages (i32.shr_u (i32.add (global.get $next) (i32.const 65535)) (i32.const 16)))
    (if (i32.gt_u (local.get $pages) (memory.size))
      (then (drop (memory.grow (i32.sub (local.get $pages) (memory.size))))))
    (local.get $start))
  (func $call (param $at i32) (param $len i32) (result i32)
    (local $reply i32)
    (local.set $reply (call $fetch (local.get $at) (local.get $len)))
    (if (i32.le_s (local.get $reply) (i32.const 0)) (then unreachable))
    (local.get $reply))
  (func (export "run") (param $ptr i32) (param $len i32)
    (local $reply i32)
    {{CALLS}}
    (call $emit (i32.add (local.get $reply) (i32.const 4)) (i32.load (local.get $reply)))))
