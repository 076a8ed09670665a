"""Optimize: keep an Iceberg table's files healthy, whatever wrote them.

`submit` checks a request and queues it; `kind` is what the control plane calls; `plan` turns health
into tasks; the tasks are Iceberg's own actions (`runner.actions`); `finish` does what comes after
all of them: tidying, expiring, cleaning. Every step looks first at what is already done.
"""
