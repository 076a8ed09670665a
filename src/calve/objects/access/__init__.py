"""With which keys, region, endpoint and certificates object storage is reached.

Belongs here: the environment, profiles, keys that a catalog lends. Must not be here: requests to the
storage itself.
"""
