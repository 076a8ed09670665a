"""Backups of MergeTree tables: freeze, copy parts once each by their content, write the manifest last.

Belongs here: the layout of a backup location, manifests, copying, verifying, deleting, keeping.
Must not be here: attaching parts to tables (`kinds.restore`) and statements about processes.
"""
