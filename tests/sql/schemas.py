"""The tables of the cages in tests."""

from calve.clickhouse.embedded.cage import TableSchema

TABLE = TableSchema(
    name="calve.processes",
    columns=(
        ("id", "String"),
        ("rows", "UInt64"),
        ("created_at", "DateTime64(3, 'UTC')"),
        ("parts", "Array(String)"),
    ),
)
EXPORTS = TableSchema(name="system.exports", columns=(("part_name", "String"), ("elapsed", "Float64")))
