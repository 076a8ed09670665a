"""`spark.read.format("mergetree")`: MergeTree parts as a Spark data source, for any Spark job.

What a person touches, like the command line: it stands on the same mapping, slicing and reading as
exports, and on nothing of the control plane. Rows go from ClickHouse's engine to Spark as Arrow.
"""
