"""What a cluster grants a session now: executors come and go, by dynamic allocation, by losses, by other users."""

from typing import Any

from calve.model.process import Granted


def granted(context: Any) -> Granted | None:
    """Executors that take tasks, and how many tasks at a time: not those that are lost, taken back or being
    decommissioned. (`defaultParallelism` says 2 where there is none, and what `spark.default.parallelism` says.)
    None if the driver's JVM is gone."""
    from py4j.protocol import Py4JError

    try:
        spark = context._jsc.sc()
        at_once = int(spark.maxNumConcurrentTasks(spark.resourceProfileManager().defaultResourceProfile()))
        known = len(spark.statusTracker().getExecutorInfos()) - 1  # the driver is in it
    except (Py4JError, OSError, AttributeError):
        return None
    return Granted(executors=known if at_once else 0, at_once=at_once)
