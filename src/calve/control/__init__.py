"""The control plane: decides the next step of each process from facts, and performs it.

Belongs here: facts, `decide`, the steps, the loop, leases, budgets, breakers, slots, the
release drain, `why`, and the ports (protocols) through which all of it acts. Must not be
here: SQL, ClickHouse, Iceberg, Spark, configuration files, printing.

Invariants: no callback, queue or in-memory flag carries a transition; memory changes only
after the store has; every outside effect is journaled before, idempotent, or carries its attempt.
"""
