"""Export: partitions of a MergeTree table to an Iceberg table, exactly once.

`submit` checks a request and queues it; `kind` is what the control plane calls; `plan` turns a
pin into an `ExportPlan`; `task` runs on executors; `mapping`, `partitioning` and `slicing` are
the pure parts of planning.
"""
