"""Plain Parquet: a folder of data files, and the commit objects that say which of them count.

Belongs here: the folder seen as a table (`folder`), its commits, publishing, fencing, undoing and
proving. Must not be here: how a data file is written, which is the same as for Iceberg.
"""
