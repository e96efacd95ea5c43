;; Moves nothing, and loops for ever as soon as its input lists three nodes or more: it passes admission, whose warm-up has two.
(module
  (memory (export "memory") 4)
  (data (i32.const 1024) "\a1\65moves\80")
  (data (i32.const 1088) "\a1\65error\6ftwo nodes do no")
  (func (export "drover_abi_v1"))
  (func (export "drover_buffer") (param $len i32) (result i32)
    (i32.const 4096))
  ;; Looks for the text "nodes" (0x65 and its letters) and the head of the array after it.
  (func $loop_from_three (param $ptr i32) (param $len i32)
    (local $end i32)
    (local.set $end (i32.sub (i32.add (local.get $ptr) (local.get $len)) (i32.const 7)))
    (block $done
      (loop $next
        (br_if $done (i32.gt_u (local.get $ptr) (local.get $end)))
        (if (i32.and
              (i32.eq (i32.load align=1 (local.get $ptr)) (i32.const 0x646f6e65)) ;; e n o d
              (i32.eq (i32.load16_u offset=4 align=1 (local.get $ptr)) (i32.const 0x7365))) ;; e s
          (then
            (if (i32.ge_u (i32.load8_u offset=6 (local.get $ptr)) (i32.const 0x83))
              (then (loop $ever (br $ever))))
            (br $done)))
        (local.set $ptr (i32.add (local.get $ptr) (i32.const 1)))
        (br $next))))
  (func (export "drover_allocate") (param $ptr i32) (param $len i32) (result i64)
    (call $loop_from_three (local.get $ptr) (local.get $len))
    (i64.const 0x0000044000000017))
  (func (export "drover_rebalance") (param $ptr i32) (param $len i32) (result i64)
    (call $loop_from_three (local.get $ptr) (local.get $len))
    (i64.const 0x0000040000000008)))
