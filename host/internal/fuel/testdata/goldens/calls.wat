;; A call costs 1, and so does entering the function called; a call of an import
;; costs the operator's 1 here, what it does is the host's to charge (spec 1.3).
(module
  (import "env" "mix" (func $mix (param i32 i64) (result i64)))
  (import "env" "nop" (func $nop))
  (table funcref (elem $add1 $mix $fib))
  (type $i (func (param i32) (result i32)))
  (type $m (func (param i32 i64) (result i64)))
  (func $add1 (param i32) (result i32) local.get 0 i32.const 1 i32.add)
  (func $pair (result i32 i32) i32.const 1 i32.const 2)
  (func (export "direct") (result i32) i32.const 5 call $add1)
  (func (export "twice") (result i32) i32.const 5 call $add1 call $add1)
  (func (export "indirect") (result i32) i32.const 5 i32.const 0 call_indirect (type $i))
  (func (export "import") (result i64) i32.const 1 i64.const 2 call $mix call $nop)
  (func (export "import_indirect") (result i64) i32.const 1 i64.const 2 i32.const 1 call_indirect (type $m))
  (func (export "two_results") (result i32) call $pair i32.add)
  ;; a leaf costs 6 (1 entry, 4 of the condition, 1 value), an inner call 14 more
  (func $fib (param i32) (result i32)
    local.get 0 i32.const 2 i32.lt_u
    if (result i32) local.get 0
    else
      local.get 0 i32.const 1 i32.sub call $fib
      local.get 0 i32.const 2 i32.sub call $fib
      i32.add
    end)
  (func (export "fib0") (result i32) i32.const 0 call $fib)
  (func (export "fib2") (result i32) i32.const 2 call $fib)
  (func (export "fib10") (result i32) i32.const 10 call $fib)
)
