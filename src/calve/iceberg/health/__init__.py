"""How a table's files are, read from its metadata alone: no JVM, no data file.

`report.health` is the whole answer; `collect` streams over manifests, `evaluate` says what is due
(pure), `score` judges, `retention` and `orphans` say what may go. Must not be here: any change
to a table, and anything of Spark.
"""
