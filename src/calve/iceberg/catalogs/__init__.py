"""Opening Iceberg catalogs: bounded HTTP, tokens, file access."""
