;; Changes a table, so that it is initialised at each call, and takes 20 million units for that.
(module
  (memory (export "memory") 1)
  (data (i32.const 1024) "\a1\65moves\80")
  (data (i32.const 1088) "\a1\65homes\81\00")
  (table $t 1 funcref)
  (func (export "_initialize") (local $i i32)
    (table.set $t (i32.const 0) (ref.null func))
    (loop $l
      (local.set $i (i32.add (local.get $i) (i32.const 1)))
      (br_if $l (i32.lt_u (local.get $i) (i32.const 3000000)))))
  (func (export "drover_abi_v1"))
  (func (export "drover_buffer") (param $len i32) (result i32)
    (i32.const 4096))
  (func (export "drover_allocate") (param $ptr i32) (param $len i32) (result i64)
    (i64.const 0x0000044000000009))
  (func (export "drover_rebalance") (param $ptr i32) (param $len i32) (result i64)
    (i64.const 0x0000040000000008)))
