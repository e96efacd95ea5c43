;; Calls each WASI stub, well and badly, and answers with what they returned: homes that are result codes and bytes.
(module
  (import "wasi_snapshot_preview1" "sched_yield" (func $sched_yield (result i32)))
  (import "wasi_snapshot_preview1" "args_get" (func $args_get (param i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "args_sizes_get" (func $args_sizes_get (param i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "environ_get" (func $environ_get (param i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "environ_sizes_get" (func $environ_sizes_get (param i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "clock_time_get" (func $clock_time_get (param i32 i64 i32) (result i32)))
  (import "wasi_snapshot_preview1" "random_get" (func $random_get (param i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "poll_oneoff" (func $poll_oneoff (param i32 i32 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "fd_write" (func $fd_write (param i32 i32 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "fd_close" (func $fd_close (param i32) (result i32)))
  (import "wasi_snapshot_preview1" "fd_fdstat_get" (func $fd_fdstat_get (param i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "fd_fdstat_set_flags" (func $fd_fdstat_set_flags (param i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "fd_prestat_get" (func $fd_prestat_get (param i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "fd_prestat_dir_name" (func $fd_prestat_dir_name (param i32 i32 i32) (result i32)))
  (memory (export "memory") 1)
  (data (i32.const 1024) "\a1\65moves\80")
  (data (i32.const 1088) "\a1\65homes\98\20")
  (global $at (mut i32) (i32.const 1097))
  (func $put (param $v i32)
    (i32.store8 (global.get $at) (i32.const 0x18))
    (i32.store8 (i32.add (global.get $at) (i32.const 1)) (local.get $v))
    (global.set $at (i32.add (global.get $at) (i32.const 2))))
  (func (export "drover_abi_v1"))
  (func (export "drover_buffer") (param $len i32) (result i32) (i32.const 8192))
  (func (export "drover_rebalance") (param i32 i32) (result i64) (i64.const 0x0000040000000008))
  (func (export "drover_allocate") (param i32 i32) (result i64)
    (call $put (call $sched_yield))                                                              ;; 0: 0
    ;; The sizes of arguments and environment are written, as zeros.
    (i64.store (i32.const 2048) (i64.const -1))
    (call $put (call $args_sizes_get (i32.const 2048) (i32.const 2052)))                         ;; 1: 0
    (call $put (i32.load8_u (i32.const 2048)))                                                   ;; 2: 0
    (call $put (i32.load8_u (i32.const 2052)))                                                   ;; 3: 0
    (call $put (call $args_get (i32.const 2048) (i32.const 2052)))                               ;; 4: 0
    (call $put (call $environ_sizes_get (i32.const 2048) (i32.const 2052)))                      ;; 5: 0
    (call $put (call $environ_get (i32.const 2048) (i32.const 2052)))                            ;; 6: 0
    (call $put (call $args_sizes_get (i32.const 65534) (i32.const 2052)))                        ;; 7: 21 fault
    (call $put (call $clock_time_get (i32.const 0) (i64.const 0) (i32.const 2048)))              ;; 8: 0
    ;; Nanoseconds of 2000-01-01, divided down to a small number.
    (call $put (i32.wrap_i64 (i64.div_u (i64.load (i32.const 2048)) (i64.const 31556926000000000)))) ;; 9: 29 years since 1970
    (call $put (call $clock_time_get (i32.const 0) (i64.const 0) (i32.const 65530)))             ;; 10: 21
    (call $put (call $random_get (i32.const 2048) (i32.const 11)))                               ;; 11: 0
    (call $put (i32.ne (i32.load (i32.const 2048)) (i32.load (i32.const 2052))))                 ;; 12: 1
    (call $put (i32.load8_u (i32.const 2059)))                                                   ;; 13: 0, not written to
    (call $put (call $random_get (i32.const 65530) (i32.const 11)))                              ;; 14: 21
    ;; One subscription to a clock with user data 5 is due at once.
    (i64.store (i32.const 3000) (i64.const 5))
    (call $put (call $poll_oneoff (i32.const 3000) (i32.const 3100) (i32.const 1) (i32.const 3200))) ;; 15: 0
    (call $put (i32.load8_u (i32.const 3100)))                                                   ;; 16: 5
    (call $put (i32.load (i32.const 3200)))                                                      ;; 17: 1
    (call $put (call $poll_oneoff (i32.const 3000) (i32.const 3100) (i32.const 0) (i32.const 3200))) ;; 18: 28 invalid
    (call $put (call $poll_oneoff (i32.const 3000) (i32.const 3100) (i32.const 17) (i32.const 3200))) ;; 19: 28
    (call $put (call $poll_oneoff (i32.const 65500) (i32.const 3100) (i32.const 1) (i32.const 3200))) ;; 20: 21
    (call $put (call $fd_write (i32.const 1) (i32.const 65533) (i32.const 1) (i32.const 3200)))  ;; 21: 21
    (call $put (call $fd_write (i32.const 1) (i32.const 3000) (i32.const 17) (i32.const 3200)))  ;; 22: 28
    (i64.store (i32.const 3000) (i64.const 0x00020000_00000000))                                 ;; 128 KiB at 0
    (call $put (call $fd_write (i32.const 1) (i32.const 3000) (i32.const 1) (i32.const 3200)))   ;; 23: 21
    (call $put (call $fd_close (i32.const 2)))                                                   ;; 24: 0
    (call $put (call $fd_close (i32.const 3)))                                                   ;; 25: 8 bad file
    (call $put (call $fd_fdstat_get (i32.const 1) (i32.const 3300)))                             ;; 26: 0
    (call $put (i32.load8_u (i32.const 3300)))                                                   ;; 27: 2 character device
    (call $put (call $fd_fdstat_get (i32.const 3) (i32.const 3300)))                             ;; 28: 8
    (call $put (call $fd_fdstat_set_flags (i32.const 0) (i32.const 0)))                          ;; 29: 0
    (call $put (call $fd_prestat_get (i32.const 3) (i32.const 3300)))                            ;; 30: 8
    (call $put (call $fd_prestat_dir_name (i32.const 3) (i32.const 3300) (i32.const 4)))         ;; 31: 8
    (i64.const 0x0000044000000049)))
