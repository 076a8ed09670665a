"""What benchmarks share: measuring, reporting, and a warm worker over a source of their own."""
