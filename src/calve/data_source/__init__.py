"""`spark.read.format("mergetree")`: MergeTree parts as a Spark data source, for any Spark job.

An entry of its own, like the command line: it uses the same mapping, slicing and reading as exports, and
nothing of the control plane. Rows go from ClickHouse's engine to Spark as Arrow.
"""
