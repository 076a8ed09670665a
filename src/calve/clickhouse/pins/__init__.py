"""FREEZE snapshots: what holds a table's parts still while a process needs them."""
