"""Data files: what a Parquet file needs so that every reader of Iceberg reads it the same way.

Belongs here: the footer (field ids, annotations), statistics for manifests, the physical
form of values. Must not be here: reading the source, choosing files, moving them.
"""
