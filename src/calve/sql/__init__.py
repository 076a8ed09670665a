"""Statements that users of ClickHouse know, over Calve's processes: parsed here, carried out by the desk.

`statement` reads the text, `settings` maps Altinity's names, `allowance` decides what a SELECT may contain,
`tables` are what it reads, `execution` runs it, `codes` are ClickHouse's numbers for our errors.
"""
