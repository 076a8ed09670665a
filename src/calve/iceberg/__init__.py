"""Iceberg: catalogs, schemas, data files and their statistics, publishing."""
