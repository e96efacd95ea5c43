;; Spins for a while and then waits for memory: the pace of a unit rises five hundred times.
(module
  (memory (export "memory") 255)
  (data (i32.const 1024) "\a1\65moves\80")
  (data (i32.const 1088) "\a1\65homes\81\00")
  (func (export "drover_abi_v1"))
  (func (export "drover_buffer") (param $len i32) (result i32)
    (i32.const 4096))
  (func (export "drover_allocate") (param $ptr i32) (param $len i32) (result i64) (local $i i32) (local $p i32)
    (local.set $i (i32.const 65536))
    (loop $fill
      (i32.store (local.get $i) (i32.add (i32.const 65536) (i32.and
        (i32.add (i32.mul (local.get $i) (i32.const 1664525)) (i32.const 1013904192)) (i32.const 0x7fffc0))))
      (br_if $fill (i32.lt_u (local.tee $i (i32.add (local.get $i) (i32.const 64))) (i32.const 12000000))))
    (local.set $p (i32.const 65536))
    (loop $l
      (local.set $i (i32.const 0))
      (loop $spin (br_if $spin (i32.lt_u (local.tee $i (i32.add (local.get $i) (i32.const 1))) (i32.const 1000000))))
      (local.set $i (i32.const 0))
      (loop $wait
        (local.set $p (i32.load (i32.load (i32.load (i32.load (i32.load (i32.load (i32.load (i32.load (i32.load (i32.load (i32.load (i32.load (i32.load (i32.load (i32.load (i32.load (i32.load (i32.load (i32.load (i32.load (i32.load (i32.load (i32.load (i32.load (i32.load (i32.load (i32.load (i32.load (i32.load (i32.load (i32.load (i32.load (i32.load (i32.load (i32.load (i32.load (i32.load (i32.load (i32.load (i32.load (local.get $p))))))))))))))))))))))))))))))))))))))))))
        (br_if $wait (i32.lt_u (local.tee $i (i32.add (local.get $i) (i32.const 1))) (i32.const 10000))))
      (br $l))
    (unreachable))
  (func (export "drover_rebalance") (param $ptr i32) (param $len i32) (result i64)
    (i64.const 0x0000040000000008)))
