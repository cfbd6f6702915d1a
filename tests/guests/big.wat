;; Emits one JSON string of {{BYTES}} bytes, quotes included.
(module
  (import "areev" "emit" (func $emit (param i32 i32)))
  (memory (export "memory") {{PAGES}})
  (func (export "alloc") (param i32) (result i32) (i32.const 16))
  (func (export "run") (param i32 i32)
    (local $at i32)
    (local.set $at (i32.const 1024))
    (loop $fill
      (i64.store (local.get $at) (i64.const 0x6161616161616161))
      (local.set $at (i32.add (local.get $at) (i32.const 8)))
      (br_if $fill (i32.lt_u (local.get $at) (i32.const {{END}}))))
    (i32.store8 (i32.const 1024) (i32.const 34))
    (i32.store8 (i32.const {{LAST}}) (i32.const 34))
    (call $emit (i32.const 1024) (i32.const {{BYTES}}))))
