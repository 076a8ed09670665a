"""Mutation testing: one place of a module is changed at a time, and some test must notice.

`places` says what is changed, `patch` puts one change into the modules that are already imported, `run` is the part of
pytest that forks a child for each, `report` keeps what came of it. `make mutants MODULE=calve.control.decide`.
"""
