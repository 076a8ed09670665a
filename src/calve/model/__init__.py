"""Pure values: states and their transitions, processes, tasks, pins, plans, receipts, errors.

Belongs here: what can be said of a process without asking anybody. Frozen dataclasses,
enums, pure functions. Must not be here: I/O, clocks, other libraries, or any name of a
product (ClickHouse, Iceberg, Spark). Standard library only.
"""
