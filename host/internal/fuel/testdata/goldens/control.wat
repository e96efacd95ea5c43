;; Blocks, loops, else, end, return and unreachable cost nothing; if, br, br_if
;; and br_table cost 1; what a branch jumps over is not paid for (spec 1.3).
(module
  (type $swap (func (param i32 i64) (result i64 i32)))
  (func (export "block") block nop end)
  (func (export "block_value") (result i32) block (result i32) i32.const 1 end)
  (func (export "return_early") (result i32) i32.const 1 return i32.const 2 i32.const 3 i32.add)
  (func $if (param i32) (result i32)
    local.get 0
    if (result i32) i32.const 10 i32.const 1 i32.add else i32.const 20 end)
  (func (export "if_then") (result i32) i32.const 1 call $if)
  (func (export "if_else") (result i32) i32.const 0 call $if)
  (func $if_only (param i32) local.get 0 if i32.const 1 drop end)
  (func (export "if_only_taken") i32.const 1 call $if_only)
  (func (export "if_only_not_taken") i32.const 0 call $if_only)
  (func (export "br") block i32.const 1 drop br 0 i32.const 1 drop i32.const 1 drop end i32.const 1 drop)
  (func $br_if (param i32) block local.get 0 br_if 0 i32.const 1 drop i32.const 1 drop end i32.const 1 drop)
  (func (export "br_if_taken") i32.const 1 call $br_if)
  (func (export "br_if_not_taken") i32.const 0 call $br_if)
  (func (export "br_if_value") (result i32) block (result i32) i32.const 9 i32.const 1 br_if 0 drop i32.const 1 end)
  ;; 1 entry, 2 setting up, 10 passes of 7: 73
  (func (export "loop10") (local i32)
    i32.const 10 local.set 0
    loop
      local.get 0 i32.const 1 i32.sub local.tee 0
      i32.const 0 i32.gt_s br_if 0
    end)
  ;; 1 entry, 2 setting up, 10 passes of 7 + 2 + (inner: 2 + 5 passes of 5): 363
  (func (export "nested10x5") (local i32 i32)
    i32.const 10 local.set 0
    loop
      i32.const 5 local.set 1
      loop local.get 1 i32.const 1 i32.sub local.tee 1 br_if 0 end
      i32.const 7 drop i32.const 7 drop
      local.get 0 i32.const 1 i32.sub local.tee 0
      i32.const 0 i32.gt_s br_if 0
    end)
  (func $table (param i32) (result i32)
    block block block
      local.get 0 br_table 0 1 2
    end
      i32.const 100 return
    end
      i32.const 100 i32.const 1 i32.add return
    end
    i32.const 100 i32.const 1 i32.add i32.const 1 i32.add)
  (func (export "br_table_0") (result i32) i32.const 0 call $table)
  (func (export "br_table_1") (result i32) i32.const 1 call $table)
  (func (export "br_table_2") (result i32) i32.const 2 call $table)
  (func (export "br_table_default") (result i32) i32.const -1 call $table)
  (func (export "multi_value") (result i64)
    i32.const 1 i64.const 2
    block (type $swap) drop drop i64.const 3 i32.const 4 end
    drop)
  (func (export "loop_params") (result i32) (local i32)
    i32.const 3
    loop (param i32) (result i32)
      i32.const 1 i32.sub local.tee 0 local.get 0 br_if 0
    end)
  (func (export "if_params") (result i32)
    i32.const 3 i32.const 4 i32.const 0
    if (param i32 i32) (result i32) i32.add else drop end)
  (func (export "dead_code") (result i32)
    block (result i32)
      i32.const 5 br 0
      i32.add
      loop i32.const 1 br_if 0 end
      if (result i32) i32.const 1 else i32.const 2 end
    end)
  (func (export "both_arms_return") (result i32)
    i32.const 1 if i32.const 1 return else i32.const 1 i32.const 2 i32.add return end
    i32.const 1 i32.const 2 i32.add i32.const 3 i32.add)
  (func (export "one_arm_returns") (result i32)
    i32.const 0 if i32.const 1 return end
    i32.const 1 i32.const 2 i32.add)
)
