;; Writes over all of its memory, grows it and writes over that too, and changes every global. The answer lies in the last
;; page of what it grew by. Allocate says how many bytes of memory and globals were not as they should be when it was called.
(module
  (memory (export "memory") 3)
  (data (i32.const 70000) "\01")
  (global $a (mut i32) (i32.const 7))
  (global $b (mut i64) (i64.const -8))
  (global $c (mut f32) (f32.const 1.5))
  (global $d (mut f64) (f64.const -2.5))
  (func (export "drover_abi_v1"))
  (func (export "drover_buffer") (param $len i32) (result i32)
    (i32.const 4096))

  ;; wrong counts what is not as the image has it: memory of zeros behind the input but for one byte, its size, the globals.
  (func $wrong (param $from i32) (result i32) (local $n i32)
    (local.set $n (i32.ne (memory.size) (i32.const 3)))
    (local.set $n (i32.add (local.get $n) (i32.ne (global.get $a) (i32.const 7))))
    (local.set $n (i32.add (local.get $n) (i64.ne (global.get $b) (i64.const -8))))
    (local.set $n (i32.add (local.get $n) (f32.ne (global.get $c) (f32.const 1.5))))
    (local.set $n (i32.add (local.get $n) (f64.ne (global.get $d) (f64.const -2.5))))
    (loop $each
      (local.set $n (i32.add (local.get $n)
        (i32.ne (i32.load8_u (local.get $from)) (i32.eq (local.get $from) (i32.const 70000)))))
      (br_if $each (i32.lt_u (local.tee $from (i32.add (local.get $from) (i32.const 1))) (i32.const 196608))))
    (local.get $n))

  ;; scribble leaves nothing as it was, and returns where the last page starts.
  (func $scribble (result i32) (local $page i32)
    (memory.fill (i32.const 0) (i32.const 0xa5) (i32.shl (memory.size) (i32.const 16)))
    (local.set $page (memory.grow (i32.const 5)))
    (memory.fill (i32.shl (local.get $page) (i32.const 16)) (i32.const 0x5a) (i32.const 327680))
    (global.set $a (i32.const -1))
    (global.set $b (i64.const 1))
    (global.set $c (f32.const 9))
    (global.set $d (f64.const 9))
    (i32.shl (i32.add (local.get $page) (i32.const 4)) (i32.const 16)))

  ;; {"homes": [wrong]}
  (func (export "drover_allocate") (param $ptr i32) (param $len i32) (result i64) (local $wrong i32) (local $at i32)
    (local.set $wrong (call $wrong (i32.add (local.get $ptr) (local.get $len))))
    (local.set $at (call $scribble))
    (i64.store (local.get $at) (i64.const 0x8173656d6f6865a1))
    (i32.store8 offset=8 (local.get $at) (select (i32.const 1) (i32.const 0) (local.get $wrong)))
    (i64.or (i64.shl (i64.extend_i32_u (local.get $at)) (i64.const 32)) (i64.const 9)))

  ;; {"moves": []}; the warm-up, whose memory is the image's, leaves all as it was
  (func (export "drover_rebalance") (param $ptr i32) (param $len i32) (result i64) (local $at i32)
    (local.set $at (i32.const 64))
    (if (i32.gt_u (local.get $len) (i32.const 600))
      (then (local.set $at (call $scribble))))
    (i64.store (local.get $at) (i64.const 0x80_7365766f6d65a1))
    (i64.or (i64.shl (i64.extend_i32_u (local.get $at)) (i64.const 32)) (i64.const 8))))
