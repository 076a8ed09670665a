"""Policies: which partitions are due, and for what.

Belongs here: policies as values, the time that a partition covers, and where a partition stands. Pure: facts are handed
in, an answer comes back. Must not be here: asking a source or a lake, the store, threads (`calve.app.policies`).
"""
