"""Deleting files through the table's own file access. What is gone already is no error."""

from collections.abc import Iterable

from pyiceberg.table import Table


def delete_files(table: Table, paths: Iterable[str]) -> int:
    """How many were there to delete."""
    deleted = 0
    for path in paths:
        try:
            # If we die here, the rest is found again: nothing refers to it.
            table.io.delete(path)
        except FileNotFoundError:
            continue
        deleted += 1
    return deleted
