"""A ClickHouse server as the source (`http://`, `https://`): our own small HTTP client, tables and
partitions of servers old and new, pins by hard-linked clones, and the live way of reading.

Credentials go in headers only: never in a URL, a statement, a plan, a log or an error.
"""
