"""HTTP as every port speaks it: bounds that hold for any server.

Belongs here: what is true of a connection whatever product is at its other end. Must not be here:
addresses, credentials, statements, or the meaning of an answer.
"""
