"""Notify: people and their tools hear what became of processes.

`targets` says who is told what; `notices` and `pings` turn events into rows of the outbox; `delivery` is one
HTTP request, signed and bounded; `notifier` moves a target from event to notice to request. Nothing here
decides about a process. Must not be here: reading the configuration (`app.config`), and threads (`app.notices`).
"""
