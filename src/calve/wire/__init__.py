"""What leaves and enters the program, whatever product is at the other end: bounds that hold for any HTTP
server, and the lines of the log.

Belongs here: what is true of a connection or a line of the log for every room. Must not be here:
addresses, credentials, statements, or the meaning of an answer.
"""
