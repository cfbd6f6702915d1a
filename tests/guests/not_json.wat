;; Emits text that is not JSON.
(module
  (import "areev" "emit" (func $emit (param i32 i32)))
  (memory (export "memory") 1)
  (data (i32.const 16) "not json")
  (func (export "alloc") (param i32) (result i32) (i32.const 1024))
  (func (export "run") (param i32 i32) (call $emit (i32.const 16) (i32.const 8))))
