"""How each step is performed, through the ports. One file for each thought.

Belongs here: effects and the single change that records them. Must not be here: choosing what
to do next; that is `decide`'s. Every function may be cut short at any line: the comment above
each effect says what happens then.
"""
