;; Counts its calls in the last byte of memory.
(module
  (memory (export "memory") 1)
  (data (i32.const 1024) "\a1\65moves\80")
  (data (i32.const 1088) "\a1\65homes\81\00")
  (func (export "drover_abi_v1"))
  (func (export "drover_buffer") (param $len i32) (result i32)
    (i32.const 4096))
  (func (export "drover_allocate") (param $ptr i32) (param $len i32) (result i64)
    (i32.store8 (i32.const 65535) (i32.add (i32.load8_u (i32.const 65535)) (i32.const 1)))
    (i32.store8 (i32.const 1096) (i32.sub (i32.load8_u (i32.const 65535)) (i32.const 1)))
    (i64.const 0x0000044000000009))
  (func (export "drover_rebalance") (param $ptr i32) (param $len i32) (result i64)
    (i64.const 0x0000040000000008)))
