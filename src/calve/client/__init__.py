"""Calve from outside: the values that a server's JSON stands for, the HTTP that carries them, and the client.

Belongs here: whatever needs a server's address and no configuration. Must not be here: a check of what somebody
may do; the server makes it.
"""
