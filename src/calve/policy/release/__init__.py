"""How a partition leaves its table, comes back from quarantine, and is dropped: three kinds over one row."""
