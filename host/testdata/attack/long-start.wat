;; Changes a table, so that it starts anew at each call, and its start section takes about a second.
(module
  (memory (export "memory") 1)
  (data (i32.const 1024) "\a1\65moves\80")
  (data (i32.const 1088) "\a1\65homes\81\00")
  (table $t 1 funcref)
  (start $start)
  (func $start (local $i i32)
    (table.set $t (i32.const 0) (ref.null func))
    (loop $l
      (local.set $i (i32.add (local.get $i) (i32.const 1)))
      (br_if $l (i32.lt_u (local.get $i) (i32.const 2000000000)))))
  (func (export "drover_abi_v1"))
  (func (export "drover_buffer") (param $len i32) (result i32)
    (i32.const 4096))
  (func (export "drover_allocate") (param $ptr i32) (param $len i32) (result i64)
    (i64.const 0x0000044000000009))
  (func (export "drover_rebalance") (param $ptr i32) (param $len i32) (result i64)
    (i64.const 0x0000040000000008)))
