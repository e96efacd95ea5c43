;; Kernels for the metered / plain ratio; each returns something of its work.
(module
  (memory 2)
  ;; calls
  (func $fib (export "fib") (result i32) i32.const 25 call $f)
  (func $f (param i32) (result i32)
    local.get 0 i32.const 2 i32.lt_u
    if (result i32) local.get 0
    else
      local.get 0 i32.const 1 i32.sub call $f
      local.get 0 i32.const 2 i32.sub call $f
      i32.add
    end)
  ;; loops over memory
  (func (export "sieve") (result i32) (local $i i32) (local $j i32) (local $n i32)
    i32.const 0 i32.const 1 i32.const 100000 memory.fill
    i32.const 2 local.set $i
    loop $outer
      local.get $i i32.load8_u
      if
        local.get $n i32.const 1 i32.add local.set $n
        local.get $i i32.const 1 i32.shl local.set $j
        block $done
          loop $inner
            local.get $j i32.const 100000 i32.ge_u br_if $done
            local.get $j i32.const 0 i32.store8
            local.get $j local.get $i i32.add local.set $j
            br $inner
          end
        end
      end
      local.get $i i32.const 1 i32.add local.tee $i
      i32.const 100000 i32.lt_u br_if $outer
    end
    local.get $n)
  ;; one tight loop
  (func (export "hash") (result i32) (local $i i32) (local $h i32)
    i32.const 0x811C9DC5 local.set $h
    loop
      local.get $h local.get $i i32.load8_u i32.xor i32.const 0x01000193 i32.mul local.set $h
      local.get $i i32.const 1 i32.add local.tee $i
      i32.const 131072 i32.lt_u br_if 0
    end
    local.get $h)
  ;; floats
  (func (export "mandelbrot") (result i32)
    (local $x i32) (local $y i32) (local $k i32) (local $n i32)
    (local $cr f64) (local $ci f64) (local $zr f64) (local $zi f64) (local $t f64)
    loop $rows
      i32.const 0 local.set $x
      loop $columns
        local.get $x f64.convert_i32_s f64.const 64 f64.div f64.const 2 f64.sub local.set $cr
        local.get $y f64.convert_i32_s f64.const 64 f64.div f64.const 1 f64.sub local.set $ci
        f64.const 0 local.set $zr f64.const 0 local.set $zi
        i32.const 0 local.set $k
        block $escaped
          loop $iterate
            local.get $zr local.get $zr f64.mul local.get $zi local.get $zi f64.mul f64.sub local.get $cr f64.add local.set $t
            local.get $zr local.get $zi f64.mul f64.const 2 f64.mul local.get $ci f64.add local.set $zi
            local.get $t local.set $zr
            local.get $zr local.get $zr f64.mul local.get $zi local.get $zi f64.mul f64.add
            f64.const 4 f64.gt br_if $escaped
            local.get $n i32.const 1 i32.add local.set $n
            local.get $k i32.const 1 i32.add local.tee $k
            i32.const 50 i32.lt_u br_if $iterate
          end
        end
        local.get $x i32.const 1 i32.add local.tee $x
        i32.const 192 i32.lt_u br_if $columns
      end
      local.get $y i32.const 1 i32.add local.tee $y
      i32.const 128 i32.lt_u br_if $rows
    end
    local.get $n)
)
