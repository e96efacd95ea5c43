;; The start function never ends.
(module
  (func $start loop br 0 end)
  (start $start)
)
