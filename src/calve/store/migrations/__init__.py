"""The numbered steps that build the schema, one pair of SQL files each; never edited once released.

A step runs in one transaction together with the row that counts it. `tables.py` describes
what all of them together build.
"""
