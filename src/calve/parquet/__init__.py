"""Plain Parquet: a folder of data files, and the commit objects that say which of them count.

Belongs here: the folder, its commits, publishing and proving, and `destination`, which puts them behind
the port. Must not be here: how a data file is written, which is the same as for Iceberg.
"""
