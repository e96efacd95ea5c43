;; Copies the largest table there may be onto itself, one up, over and over.
(module
  (memory (export "memory") 1)
  (data (i32.const 1024) "\a1\65moves\80")
  (data (i32.const 1088) "\a1\65homes\81\00")
  (table $t 65536 funcref)
  (func (export "drover_abi_v1"))
  (func (export "drover_buffer") (param $len i32) (result i32)
    (i32.const 4096))
  (func (export "drover_allocate") (param $ptr i32) (param $len i32) (result i64)
    (loop $l (table.copy (i32.const 1) (i32.const 0) (i32.const 65535)) (br $l))
    (unreachable))
  (func (export "drover_rebalance") (param $ptr i32) (param $len i32) (result i64)
    (i64.const 0x0000040000000008)))
