"""The engine of a Python worker process: its session, scratch tables and scratch folders."""
