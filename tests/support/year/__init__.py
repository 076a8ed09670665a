"""A simulated year of tiering: policies, releases, returns, drops, undos and the guard of whole installations, on a clock
that jumps from day to day, with people who do all that people do.

Real: everything from `calve.app` and the kinds down to SQL, the catalog's port and the file formats; the SQL store. Modelled,
below the ports: ClickHouse, by the very statements that it is sent (`clickhouse`, `statements`), and what
`support.simulator` models, whose schedule, weather, catalog, storage and Spark are used here.

What must hold is read by value after every effect (`check`); nothing there knows a step of the product. `mistakes` removes its
rules one at a time.
"""
