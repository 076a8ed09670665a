"""Backups of MergeTree tables: freeze, copy parts once each by their content, write the manifest last.

Belongs here: freezing, copying, verifying, deleting, retention. Must not be here: the format of a backup
(`calve.archive`), and attaching parts to tables (`calve.restore`).
"""
