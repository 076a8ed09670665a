"""Where exports go: the port, and the values that every implementation answers with.

`address` says how a destination is written down, `port` what it must do, `outcome` what it can
answer, `plan` and `receipt` what an export agrees with it before and after the work, `content` whether
the source still is what was exported. The implementations are `calve.iceberg.destination` and `calve.parquet.destination`; the
registry that opens them is `calve.destination.names`. Must not be here: anything that knows one
of them.
"""
