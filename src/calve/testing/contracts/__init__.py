"""What every implementation of a port must do, as tests that its own test class inherits.

The store's, by theme: `calve.testing.contracts.store` puts them together; a theme inherits `Contract` and
gets `store` and `clock` from the class that inherits the whole. Object storage's: `objects`. Tests here
see an implementation through its port only.
"""
