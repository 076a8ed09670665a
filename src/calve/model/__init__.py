"""Pure values: states and their transitions, processes, changes and what they do, errors, limits, reach,
locks, and the codec for everything stored.

Belongs here: what is known of a process of any kind without I/O. Frozen dataclasses, enums, pure
functions. Must not be here: I/O, clocks, other libraries, or a noun of one kind or product (export,
ClickHouse, Iceberg, Spark). Standard library only.
"""
