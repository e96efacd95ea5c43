;; Follows pointers all over 16 MiB in each of 1400 calls before it calls on: what the active calls have executed lies
;; before the looks of their callees.
(module
  (memory (export "memory") 255)
  (data (i32.const 1024) "\a1\65moves\80")
  (data (i32.const 1088) "\a1\65homes\81\00")
  (func (export "drover_abi_v1"))
  (func (export "drover_buffer") (param $len i32) (result i32)
    (i32.const 4096))
  (func $down (param $depth i32) (param $p i32) (result i32)
    (if (i32.eqz (local.get $depth)) (then (return (local.get $p))))
    local.get $depth
    i32.const 1
    i32.sub
    local.get $p
    i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load
    i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load
    i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load
    i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load
    i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load
    i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load
    i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load
    i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load
    i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load
    i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load
    i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load
    i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load
    i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load
    i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load
    i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load
    i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load
    i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load
    i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load
    i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load
    i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load
    i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load
    i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load
    i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load i32.load
    call $down)
  (func (export "drover_allocate") (param $ptr i32) (param $len i32) (result i64) (local $i i32)
    (local.set $i (i32.const 65536))
    (loop $fill
      (i32.store (local.get $i) (i32.add (i32.const 65536) (i32.and
        (i32.add (i32.mul (local.get $i) (i32.const 1664525)) (i32.const 1013904192)) (i32.const 0x7fffc0))))
      (br_if $fill (i32.lt_u (local.tee $i (i32.add (local.get $i) (i32.const 64))) (i32.const 12000000))))
    (local.set $i (i32.const 65536))
    (loop $l
      (local.set $i (call $down (i32.const 1400) (local.get $i)))
      (br $l))
    (unreachable))
  (func (export "drover_rebalance") (param $ptr i32) (param $len i32) (result i64)
    (i64.const 0x0000040000000008)))
