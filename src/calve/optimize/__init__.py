"""Optimize: keep an Iceberg table's files healthy, whatever wrote them.

`submit` checks a request and queues it; `kind` is what the control plane calls; `plan` turns health
into tasks; the tasks are Iceberg's own actions (`spark.actions`); `finish` does what comes after
all of them: tidy, expire, clean up. Every step first looks at what is already done. Must not be here: any
other kind.
"""
