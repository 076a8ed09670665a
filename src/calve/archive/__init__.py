"""The format of a backup: its location, manifests and stored parts, and a backup as a source of rows.

Belongs here: whatever more than one kind needs to know of a backup. Must not be here: making,
checking and deleting backups (`calve.backup`), and making tables of them (`calve.restore`).
"""
