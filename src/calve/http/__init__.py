"""`calve serve`: the façade over HTTP.

A request passes the guard (is it from where it may come, small and not too often), gets a caller (identity),
and becomes a verb of the desk (routes), which runs beside the event loop: in the store's threads, or as an
errand where a source, a catalog or a storage is asked (errands). Errors leave as problems (problem).
Beside verbs: events as they happen (stream), SQL (clickhouse), tables and actions for ClickHouse servers (tables),
and the routes of clickhouse-backup (aliases).

Belongs here: everything about HTTP. Must not be here: rights, which belong to verbs (`calve.app.desk`), and
any way to the façade around the desk.
"""
