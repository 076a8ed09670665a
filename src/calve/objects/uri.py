"""One form of path everywhere: the full URI (L8). Nothing is percent-encoded or decoded: no reader does."""

from pathlib import Path


def full_uri(location: str) -> str:
    """A folder's or Hadoop's form (`/a/b`, `file:/a/b`) as `file:///a/b`; other URIs as they are."""
    if location.startswith("file:") and not location.startswith("file://"):
        location = location.removeprefix("file:")
    if "://" in location:
        return location
    return f"file://{Path(location).absolute()}"
