(module
  (memory (export "memory") i64 1))
