;; The start function is paid like any other (spec 1.3).
(module
  (global $g (mut i32) (i32.const 0))
  (func $start i32.const 5 global.set $g)
  (start $start)
  (func (export "read") (result i32) global.get $g)
)
