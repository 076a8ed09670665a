"""What our own tests start and drive: real services, proxies that fail, places to export in, runners without Spark.

`tests/` is on the path of every test program and of its children (`pythonpath` in pyproject.toml, and
`tests/conftest.py`). What users may build their own tests on is `calve.testing`.
"""
