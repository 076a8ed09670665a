"""Policies: which partitions are due, and for what; and the kind that proves what was exported.

Belongs here: policies as values, the time that a partition covers, and where a partition stands. Pure: facts are handed
in, an answer comes back. `proof` and what it is made of are a kind: they reach the source and the destination by their
ports. Must not be here: the store, threads (`calve.app.policies.starts`).
"""
