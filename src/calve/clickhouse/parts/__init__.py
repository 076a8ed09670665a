"""Parts and partitions of a table as they are: facts, files, content ids, selection."""
