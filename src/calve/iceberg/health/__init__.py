"""The health of a table's files, read from its metadata alone: no JVM, no data file.

`report.health` is the whole answer. `entries` reads manifests into `stats`; `due` says what to rewrite,
`score` and `findings` judge, `retention` and `orphans` say what may go. Must not be here: any change to
a table, and anything of Spark.
"""
