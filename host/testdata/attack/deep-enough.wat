;; Nests 1 000 calls in each of its functions, and returns.
(module
  (memory (export "memory") 1)
  (data (i32.const 1024) "\a1\65moves\80")
  (data (i32.const 1088) "\a1\65homes\81\00")
  (func $deep (param $n i32)
    (if (local.get $n) (then (call $deep (i32.sub (local.get $n) (i32.const 1))))))
  (func (export "drover_abi_v1"))
  (func (export "drover_buffer") (param $len i32) (result i32)
    (call $deep (i32.const 1000)) (i32.const 4096))
  (func (export "drover_allocate") (param $ptr i32) (param $len i32) (result i64)
    (call $deep (i32.const 1000)) (i64.const 0x0000044000000009))
  (func (export "drover_rebalance") (param $ptr i32) (param $len i32) (result i64)
    (call $deep (i32.const 1000)) (i64.const 0x0000040000000008)))
