;; Recurses, and does its work on the way back: 200 dependent loads for each of the calls, which wait for memory.
(module
  (memory (export "memory") 255)
  (data (i32.const 1024) "\a1\65moves\80")
  (data (i32.const 1088) "\a1\65homes\81\00")
  (func $down (param $n i32) (param $p i32) (result i32)
    (if (i32.eqz (local.get $n)) (then (return (local.get $p))))
    (local.set $p (call $down (i32.sub (local.get $n) (i32.const 1)) (local.get $p)))
    (i32.load (i32.load (i32.load (i32.load (i32.load (i32.load (i32.load (i32.load (i32.load (i32.load (i32.load (i32.load (i32.load (i32.load (i32.load (i32.load (i32.load (i32.load (i32.load (i32.load (i32.load (i32.load (i32.load (i32.load (i32.load (i32.load (i32.load (i32.load (i32.load (i32.load (i32.load (i32.load (i32.load (i32.load (i32.load (i32.load (i32.load (i32.load (i32.load (i32.load (i32.load (i32.load (i32.load (i32.load (i32.load (i32.load (i32.load (i32.load (i32.load (i32.load (i32.load (i32.load (i32.load (i32.load (i32.load (i32.load (i32.load (i32.load (i32.load (i32.load (i32.load (i32.load (i32.load (i32.load (i32.load (i32.load (i32.load (i32.load (i32.load (i32.load (i32.load (i32.load (i32.load (i32.load (i32.load (i32.load (i32.load (i32.load (i32.load (i32.load (i32.load (i32.load (i32.load (i32.load (i32.load (i32.load (i32.load (i32.load (i32.load (i32.load (i32.load (i32.load (i32.load (i32.load (i32.load (i32.load (i32.load (i32.load (i32.load (i32.load (i32.load (i32.load (i32.load (i32.load (i32.load (i32.load (i32.load (i32.load (i32.load (i32.load (i32.load (i32.load (i32.load (i32.load (i32.load (i32.load (i32.load (i32.load (i32.load (i32.load (i32.load (i32.load (i32.load (i32.load (i32.load (i32.load (i32.load (i32.load (i32.load (i32.load (i32.load (i32.load (i32.load (i32.load (i32.load (i32.load (i32.load (i32.load (i32.load (i32.load (i32.load (i32.load (i32.load (i32.load (i32.load (i32.load (i32.load (i32.load (i32.load (i32.load (i32.load (i32.load (i32.load (i32.load (i32.load (i32.load (i32.load (i32.load (i32.load (i32.load (i32.load (i32.load (i32.load (i32.load (i32.load (i32.load (i32.load (i32.load (i32.load (i32.load (i32.load (i32.load (i32.load (i32.load (i32.load (i32.load (i32.load (i32.load (i32.load (i32.load (i32.load (i32.load (i32.load (i32.load (i32.load (i32.load (i32.load (i32.load (i32.load (i32.load (i32.load (i32.load (i32.load (i32.load (i32.load (i32.load (i32.load (i32.load (i32.load (i32.load (local.get $p))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))
  (func (export "drover_abi_v1"))
  (func (export "drover_buffer") (param $len i32) (result i32)
    (i32.const 4096))
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
