"""What a process does: one folder for each kind, with plan, task, publish and undo.

Belongs here: how the source, the lake and the executors work together for one kind. Must not
be here: SQL of the store, retries and budgets (the control plane's), printing.
"""
