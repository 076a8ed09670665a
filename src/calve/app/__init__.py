"""Configuration and wiring: the one place that builds the others."""
