"""What every store must do, by theme; `calve.testing.store_contract` puts them together.

Tests here see a store only through its ports. A theme inherits `Contract` and gets `store`
and `clock` from the class that inherits the whole.
"""
