"""`calve demo`: makes a table, exports it by the very path of `calve export`, and proves the result.

Belongs here: the demo's data, its folder, and the comparison of source, PyIceberg and ClickHouse.
Must not be here: any way of exporting of its own.
"""
