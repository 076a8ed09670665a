"""One form of a path, so that a file is never taken for another because of how it is written.

Spark writes `file:/x`, PyIceberg `file:///x`; Hadoop says `s3a://` where others say `s3://`. The
invariant: two spellings of one file compare equal; two files never do.
"""

_SAME_SCHEME = {"s3a": "s3", "s3n": "s3"}


def normal(location: str) -> str:
    """The form that is compared. Not for opening: that takes the path as it was written."""
    scheme, colon, rest = location.partition(":")
    if not colon or "/" in scheme:
        return "file:/" + location.lstrip("/") if location.startswith("/") else location
    if scheme == "file":
        return "file:/" + rest.lstrip("/")
    return f"{_SAME_SCHEME.get(scheme, scheme)}:{rest}"
