;; A strategy that takes the first key of an input for granted: it moves nothing if that is "v", and fails otherwise, as a
;; reader does that goes by places instead of keys.
(module
  (memory (export "memory") 2)
  (data (i32.const 0) "\a1\65moves\80")
  (data (i32.const 16) "\a1\65error\6cwant v first")
  (func (export "drover_abi_v1"))
  (func (export "drover_buffer") (param i32) (result i32) (i32.const 65536))
  (func (export "drover_allocate") (param i32 i32) (result i64) (i64.const 8))
  (func (export "drover_rebalance") (param $at i32) (param $len i32) (result i64)
    (if (result i64) (i32.eq (i32.load8_u offset=2 (local.get $at)) (i32.const 0x76))
      (then (i64.const 8))
      (else (i64.or (i64.shl (i64.const 16) (i64.const 32)) (i64.const 20))))))
