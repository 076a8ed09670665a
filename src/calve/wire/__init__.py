"""HTTP as every port speaks it: what an answer must keep to, whoever sends it.

Belongs here: what is true of a connection whatever product is at its other end. Must not be here:
addresses, credentials, statements, or the meaning of an answer. Standard library only.
"""
