"""ClickHouse's SQL as text: tokens, names, types, clauses, rows. Pure."""
