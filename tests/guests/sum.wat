;; Adds up every integer behind `"cents":` in its input and emits {"total_cents": sum}.
(module
  (import "areev" "emit" (func $emit (param i32 i32)))
  (memory (export "memory") 2)
  (data (i32.const 16) "\"cents\":")
  (data (i32.const 32) "{\"total_cents\":")
  (global $next (mut i32) (i32.const 4096))
  (func (export "alloc") (param $len i32) (result i32)
    (local $start i32)
    (local.set $start (global.get $next))
    (global.set $next (i32.add (global.get $next) (local.get $len)))
    (local.get $start))
  (func $add_up (param $at i32) (param $end i32) (result i64)
    (local $sum i64) (local $number i64) (local $digit i32)
    (block $done
      (loop $search
        (br_if $done (i32.gt_u (i32.add (local.get $at) (i32.const 8)) (local.get $end)))
        (if (i64.ne (i64.load (local.get $at)) (i64.load (i32.const 16)))
          (then (local.set $at (i32.add (local.get $at) (i32.const 1))) (br $search)))
        (local.set $at (i32.add (local.get $at) (i32.const 8)))
        (local.set $number (i64.const 0))
        (block $read
          (loop $digits
            (br_if $read (i32.ge_u (local.get $at) (local.get $end)))
            (local.set $digit (i32.sub (i32.load8_u (local.get $at)) (i32.const 48)))
            (br_if $read (i32.gt_u (local.get $digit) (i32.const 9)))
            (local.set $number
              (i64.add (i64.mul (local.get $number) (i64.const 10)) (i64.extend_i32_u (local.get $digit))))
            (local.set $at (i32.add (local.get $at) (i32.const 1)))
            (br $digits)))
        (local.set $sum (i64.add (local.get $sum) (local.get $number)))
        (br $search)))
    (local.get $sum))
  ;; The text is written from its end at 128: digits first, then the prefix before them.
  (func (export "run") (param $ptr i32) (param $len i32)
    (local $number i64) (local $at i32) (local $copied i32)
    (local.set $number (call $add_up (local.get $ptr) (i32.add (local.get $ptr) (local.get $len))))
    (i32.store8 (i32.const 128) (i32.const 125))
    (local.set $at (i32.const 128))
    (loop $digits
      (local.set $at (i32.sub (local.get $at) (i32.const 1)))
      (i32.store8 (local.get $at)
        (i32.add (i32.const 48) (i32.wrap_i64 (i64.rem_u (local.get $number) (i64.const 10)))))
      (local.set $number (i64.div_u (local.get $number) (i64.const 10)))
      (br_if $digits (i64.ne (local.get $number) (i64.const 0))))
    (local.set $copied (i32.const 15))
    (loop $prefix
      (local.set $at (i32.sub (local.get $at) (i32.const 1)))
      (local.set $copied (i32.sub (local.get $copied) (i32.const 1)))
      (i32.store8 (local.get $at) (i32.load8_u (i32.add (i32.const 32) (local.get $copied))))
      (br_if $prefix (local.get $copied)))
    (call $emit (local.get $at) (i32.sub (i32.const 129) (local.get $at)))))
