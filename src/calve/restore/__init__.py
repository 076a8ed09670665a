"""Restores: make what a backup describes, fetch its parts, check every byte, attach each exactly once.

Belongs here: statements rewritten for another name, staging, attaching. Must not be here: the
layout of a backup location (`calve.archive`).
"""
