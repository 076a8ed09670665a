"""How a partition comes back from the lake into its table."""
