"""Shipped fakes, contract suites, the crashing port, the clock, small real services."""
