"""Spark: the session, jobs, cancelling. The one room that starts a JVM."""
