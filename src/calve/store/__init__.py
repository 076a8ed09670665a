"""The SQL that keeps the model's rows: schema, migrations, and one file for each group of calls.

Belongs here: tables, statements, transactions, the two databases' ways. Must not be here:
a decision about what a process does next; what a change means is derived in `model.apply`.
"""

from calve.store.store import SqlStore, open_store

__all__ = ["SqlStore", "open_store"]
