"""ClickHouse: connections, tables, parts, pins, types, and the embedded engine.

Belongs here: everything that knows ClickHouse's SQL, files, types or errors. Two sides use
it: the control plane visits a source (`source`, `embedded`, `server`, `tables`, `parts`, `pins`,
`ddl`); an executor reads parts (`reader`, `engine`). Must not be here: Iceberg, Spark, the
store; and no import of chdb outside of the function that opens a session (W10).
"""
