"""Soak: small exports, backups and optimizes for hours, by real programs over real services, and what they hold meanwhile:
memory, handles, threads, temporary files, rows of the store. A line that rises for ever is a leak, and fails the run.
"""
