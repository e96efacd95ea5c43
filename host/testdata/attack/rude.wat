;; Has escape sequences in its name and reasons, and defaults that JSON cannot hold.
(module
  (memory (export "memory") 1)
  (data (i32.const 1024) "\a1\65moves\81\83\00\01\67\1b[31m\0ax")
  (data (i32.const 2048) "\a1\65moves\80")
  (data (i32.const 1100) "\a3\64name\67\1b[31m\0ax\67version\611\66config\a3\61a\a2\64type\65float\67default\fb\7f\f8\00\00\00\00\00\00\61b\a2\64type\65bytes\67default\42\ff\00\61c\a2\64type\65table\67default\a1\61x\1b\ff\ff\ff\ff\ff\ff\ff\ff")
  (func (export "drover_abi_v1"))
  (func (export "drover_buffer") (param i32) (result i32) (i32.const 4096))
  (func (export "drover_describe") (result i64) (i64.const 0x0000044c0000007a))
  (func (export "drover_allocate") (param i32 i32) (result i64) (i64.const 0))
  (func (export "drover_rebalance") (param $ptr i32) (param $len i32) (result i64)
   (if (result i64) (i32.gt_u (local.get $len) (i32.const 600)) (then (i64.const 0x0000040000000013)) (else (i64.const 0x0000080000000008)))))
