"""Pure values: states and their transitions, processes, tasks, pins, plans, receipts, errors.

Belongs here: what is known of a process without I/O. Frozen dataclasses,
enums, pure functions. Must not be here: I/O, clocks, other libraries, or any name of a
product (ClickHouse, Iceberg, Spark). Standard library only.
"""
