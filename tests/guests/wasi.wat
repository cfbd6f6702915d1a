;; Asks for a function that no guest is given.
(module
  (import "wasi_snapshot_preview1" "random_get" (func (param i32 i32) (result i32)))
  (memory (export "memory") 1)
  (func (export "alloc") (param i32) (result i32) (i32.const 1024))
  (func (export "run") (param i32 i32)))
