;; Takes memory a page at a time until it gets no more, and says so.
(module
  (import "areev" "emit" (func $emit (param i32 i32)))
  (memory (export "memory") 1)
  (data (i32.const 16) "{\"refused\":true}")
  (func (export "alloc") (param i32) (result i32) (i32.const 1024))
  (func (export "run") (param i32 i32)
    (loop $more (br_if $more (i32.ne (memory.grow (i32.const 1)) (i32.const -1))))
    (call $emit (i32.const 16) (i32.const 16))))
