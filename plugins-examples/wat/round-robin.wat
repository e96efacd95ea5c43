;; round-robin: shard s lives on candidate s mod n, and nothing moves. The contract without any help: what a strategy is at the bottom.
;;
;; It reads two keys of an allocate, "candidates" and "shards", and skips all others. The host writes every length down, so nothing of indefinite length is
;; read. Where the input is not as it should be it traps: the host then says so and places the shards itself.
(module
  (memory (export "memory") 1)
  (data (i32.const 16) "\a1\65moves\80") ;; {"moves": []}, 8 bytes
  (data (i32.const 32) "\a1\65homes")    ;; {"homes": …

  (global $pos (mut i32) (i32.const 0))  ;; what is read next
  (global $end (mut i32) (i32.const 0))  ;; behind the input
  (global $major (mut i32) (i32.const 0)) ;; of the last head: 0 integer, 2 bytes, 3 text, 4 array, 5 map, 6 tag, 7 simple

  (func (export "drover_abi_v1"))

  ;; The input lies at 1024, behind it the candidates as i32s, behind them the answer.
  (func (export "drover_buffer") (param $len i32) (result i32)
    (call $room (i64.add (i64.const 1024) (i64.extend_i32_u (local.get $len))))
    (i32.const 1024))

  ;; Makes the memory as large as upto.
  (func $room (param $upto i64)
    (local $more i64)
    (local.set $more (i64.sub (local.get $upto) (i64.shl (i64.extend_i32_u (memory.size)) (i64.const 16))))
    (if (i64.gt_s (local.get $more) (i64.const 0))
      (then (if (i32.eq (i32.const -1)
          (memory.grow (i32.wrap_i64 (i64.shr_u (i64.add (local.get $more) (i64.const 0xffff)) (i64.const 16)))))
        (then unreachable)))))

  ;; Passes over n bytes of the input and returns where they are.
  (func $bytes (param $n i64) (result i32)
    (local $at i32)
    (local.set $at (global.get $pos))
    (if (i64.gt_u (local.get $n) (i64.extend_i32_u (i32.sub (global.get $end) (local.get $at)))) (then unreachable))
    (global.set $pos (i32.add (local.get $at) (i32.wrap_i64 (local.get $n))))
    (local.get $at))

  ;; Reads the first bytes of a value: its kind goes to $major, its number is returned.
  (func $head (result i64)
    (local $info i32) (local $width i32) (local $n i64)
    (local.set $info (i32.load8_u (call $bytes (i64.const 1))))
    (global.set $major (i32.shr_u (local.get $info) (i32.const 5)))
    (local.set $info (i32.and (local.get $info) (i32.const 31)))
    (if (i32.lt_u (local.get $info) (i32.const 24)) (then (return (i64.extend_i32_u (local.get $info)))))
    (if (i32.gt_u (local.get $info) (i32.const 27)) (then unreachable))
    (local.set $width (i32.shl (i32.const 1) (i32.sub (local.get $info) (i32.const 24)))) ;; 1, 2, 4 or 8 bytes
    (loop $next
      (local.set $n (i64.or (i64.shl (local.get $n) (i64.const 8)) (i64.load8_u (call $bytes (i64.const 1)))))
      (br_if $next (local.tee $width (i32.sub (local.get $width) (i32.const 1)))))
    (local.get $n))

  ;; Reads the head of a value that must be of that kind.
  (func $want (param $major i32) (result i64)
    (local $n i64)
    (local.set $n (call $head))
    (if (i32.ne (global.get $major) (local.get $major)) (then unreachable))
    (local.get $n))

  ;; Passes over a value: over one, and over as many more as its arrays, maps and tags hold.
  (func $skip
    (local $left i64) (local $n i64)
    (local.set $left (i64.const 1))
    (loop $next
      (local.set $left (i64.sub (local.get $left) (i64.const 1)))
      (local.set $n (call $head))
      (if (i32.eq (i32.and (global.get $major) (i32.const 6)) (i32.const 2)) ;; bytes or text
        (then (drop (call $bytes (local.get $n))))
        (else (if (i32.eq (i32.and (global.get $major) (i32.const 6)) (i32.const 4)) ;; array or map
          (then
            ;; Each element takes a byte at least.
            (if (i64.gt_u (local.get $n) (i64.extend_i32_u (i32.sub (global.get $end) (global.get $pos)))) (then unreachable))
            (local.set $left (i64.add (local.get $left)
              (i64.shl (local.get $n) (i64.extend_i32_u (i32.and (global.get $major) (i32.const 1)))))))
          (else (if (i32.eq (global.get $major) (i32.const 6)) (then (local.set $left (i64.add (local.get $left) (i64.const 1)))))))))
      (br_if $next (i64.ne (local.get $left) (i64.const 0)))))

  (func (export "drover_rebalance") (param i32 i32) (result i64)
    (i64.const 0x0000001000000008)) ;; 16, 8 bytes

  (func (export "drover_allocate") (param $ptr i32) (param $len i32) (result i64)
    (local $keys i64) (local $n i32) (local $key i32)
    (local $candidates i32) (local $count i32) ;; i32s, and their number
    (local $shards i32) (local $left i32)      ;; little-endian u32s, and their number
    (local $out i32) (local $w i32) (local $node i32)
    (global.set $pos (local.get $ptr))
    (global.set $end (i32.add (local.get $ptr) (local.get $len)))
    (local.set $candidates (i32.and (i32.add (global.get $end) (i32.const 3)) (i32.const -4)))
    (local.set $keys (call $want (i32.const 5)))
    (block $done
      (loop $next
        (br_if $done (i64.eqz (local.get $keys)))
        (local.set $keys (i64.sub (local.get $keys) (i64.const 1)))
        (local.set $n (i32.wrap_i64 (call $want (i32.const 3))))
        (local.set $key (call $bytes (i64.extend_i32_u (local.get $n))))
        (if (i32.eq (local.get $n) (i32.const 6))
          (then (if (i32.and (i32.eq (i32.load align=1 (local.get $key)) (i32.const 0x72616873)) ;; "shar", little-endian
                             (i32.eq (i32.load16_u offset=4 align=1 (local.get $key)) (i32.const 0x7364))) ;; "ds"
            (then
              (if (i64.ne (call $want (i32.const 6)) (i64.const 70)) (then unreachable)) ;; RFC 8746: u32s
              (local.set $left (i32.wrap_i64 (call $want (i32.const 2))))
              (local.set $shards (call $bytes (i64.extend_i32_u (local.get $left))))
              (local.set $left (i32.shr_u (local.get $left) (i32.const 2)))
              (br $next)))))
        (if (i32.eq (local.get $n) (i32.const 10))
          (then (if (i32.and (i64.eq (i64.load align=1 (local.get $key)) (i64.const 0x74616469646e6163)) ;; "candidat"
                             (i32.eq (i32.load16_u offset=8 align=1 (local.get $key)) (i32.const 0x7365))) ;; "es"
            (then
              (local.set $n (i32.wrap_i64 (call $want (i32.const 4))))
              (block $all
                (loop $each
                  (br_if $all (i32.eq (local.get $count) (local.get $n)))
                  (local.set $w (i32.add (local.get $candidates) (i32.shl (local.get $count) (i32.const 2))))
                  (call $room (i64.add (i64.extend_i32_u (local.get $w)) (i64.const 4)))
                  (i32.store (local.get $w) (i32.wrap_i64 (call $want (i32.const 0))))
                  (local.set $count (i32.add (local.get $count) (i32.const 1)))
                  (br $each)))
              (br $next)))))
        (call $skip)
        (br $next)))

    ;; {"homes": [ … ]}: the length, and each node, as an integer of 4 bytes.
    (local.set $out (i32.add (local.get $candidates) (i32.shl (local.get $count) (i32.const 2))))
    (call $room (i64.add (i64.extend_i32_u (local.get $out))
      (i64.add (i64.const 16) (i64.mul (i64.const 5) (i64.extend_i32_u (local.get $left))))))
    (memory.copy (local.get $out) (i32.const 32) (i32.const 7))
    (local.set $w (call $number (i32.add (local.get $out) (i32.const 7)) (i32.const 0x9a) (local.get $left)))
    (block $end
      (loop $each
        (br_if $end (i32.eqz (local.get $left)))
        (if (local.get $count)
          (then
            (local.set $node (i32.load (i32.add (local.get $candidates)
              (i32.shl (i32.rem_u (i32.load align=1 (local.get $shards)) (local.get $count)) (i32.const 2)))))
            (local.set $w (call $number (local.get $w) (i32.const 0x1a) (local.get $node))))
          (else
            (i32.store8 (local.get $w) (i32.const 0xf6)) ;; null: no node may get it
            (local.set $w (i32.add (local.get $w) (i32.const 1)))))
        (local.set $shards (i32.add (local.get $shards) (i32.const 4)))
        (local.set $left (i32.sub (local.get $left) (i32.const 1)))
        (br $each)))
    (i64.or (i64.shl (i64.extend_i32_u (local.get $out)) (i64.const 32))
      (i64.extend_i32_u (i32.sub (local.get $w) (local.get $out)))))

  ;; Writes a head whose number has 4 bytes, the highest first, and returns where the next byte goes.
  (func $number (param $w i32) (param $head i32) (param $n i32) (result i32)
    (i32.store8 (local.get $w) (local.get $head))
    (i32.store8 offset=1 (local.get $w) (i32.shr_u (local.get $n) (i32.const 24)))
    (i32.store8 offset=2 (local.get $w) (i32.shr_u (local.get $n) (i32.const 16)))
    (i32.store8 offset=3 (local.get $w) (i32.shr_u (local.get $n) (i32.const 8)))
    (i32.store8 offset=4 (local.get $w) (local.get $n))
    (i32.add (local.get $w) (i32.const 5))))
