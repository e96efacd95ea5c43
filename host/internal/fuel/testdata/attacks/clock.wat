;; Long bulk operations, to be stopped half-way.
(module
  (memory (export "memory") 80)
  (func (export "fill") (param i32) i32.const 0 i32.const 7 local.get 0 memory.fill)
  (func (export "copy") (param i32 i32 i32) local.get 0 local.get 1 local.get 2 memory.copy)
)
