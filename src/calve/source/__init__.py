"""ClickHouse: connections, tables, parts, pins, types, and the embedded engine."""
