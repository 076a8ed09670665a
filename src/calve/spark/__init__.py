"""Spark: the session, waves of task attempts as jobs, cancellation. The one room that starts a JVM.

Belongs here: how a `TaskOrder` reaches an executor (`runner`, `executor`) or the driver's JVM (`driver`,
`actions`, `maintenance`) and how its `TaskResult` comes back. Must not be here: what an exported row is,
retries (attempts are the control plane's), or the store.
"""
