"""Policies at work: what a worker does by them, what people say to them, and views over a table and its lake."""
