"""Where objects are kept: a local folder, S3. Each is an `ObjectStore`; `calve.objects.storage` picks one.

Belongs here: what differs between the two and the wrapping of their errors. Must not be
here: what the objects mean.
"""
