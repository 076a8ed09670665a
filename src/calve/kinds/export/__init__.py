"""Export: partitions of a MergeTree table to an Iceberg table."""
