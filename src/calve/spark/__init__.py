"""Spark: the session, waves of task attempts as jobs, cancelling. The one room that starts a JVM.

Belongs here: how a `TaskOrder` reaches an executor and its `TaskResult` comes back. Must not
be here: what a task does, retries (attempts are the control plane's), or any other product.
"""
