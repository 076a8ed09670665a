"""Locations: one form everywhere, the full URI (L8), and the one place that takes it apart.

Nothing is percent-encoded or decoded: no reader of Iceberg does so either. The invariants: two spellings
of one file compare equal (`comparable`); a name that comes from data never leads outside the folder that
it is joined to (T9).
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Self

from calve.model.errors import PermanentError

LOCAL, S3, AZURE, GCS = "file", "s3", "abfss", "gs"
# What each scheme means: Hadoop says s3a and s3n where others say s3, and has four names for Azure.
_KINDS = {"file": LOCAL} | dict.fromkeys(("s3", "s3a", "s3n"), S3)
_KINDS |= dict.fromkeys(("abfss", "abfs", "wasbs", "wasb", "az"), AZURE) | {"gs": GCS}
FORMS = (
    "file:///absolute/path, s3://bucket/path, gs://bucket/path"
    " or abfss://container@account.dfs.core.windows.net/path"
)


@dataclass(frozen=True, slots=True)
class Uri:
    """A full URI. `bucket` is empty for local files; `key` has no leading slash and never leads upwards."""

    scheme: str
    bucket: str
    key: str

    @classmethod
    def parse(cls, text: str) -> Self:
        """PermanentError (`storage_uri`) for anything but a full URI."""
        scheme, separator, rest = text.partition("://")
        bucket, slash, key = rest.partition("/")
        local = scheme == LOCAL
        if not separator or not scheme or local == bool(bucket) or (local and not slash) or leads_out(key):
            raise PermanentError(
                f"invalid location {text!r}",
                code="storage_uri",
                hint=f"give a full URI: {FORMS}",
            )
        return cls(scheme, bucket, key)

    def __str__(self) -> str:
        return f"{self.place}/{self.key}"

    def __truediv__(self, name: str) -> "Uri":
        """A name below this folder. PermanentError (`storage_uri`) if it leads outside (T9)."""
        if not name or name.startswith("/") or leads_out(name):
            raise PermanentError(
                f"invalid name {name!r}: it leads outside {self}",
                code="storage_uri",
                hint="the object that names it is damaged or was changed by hand",
            )
        folder = self.key.rstrip("/")
        return Uri(self.scheme, self.bucket, f"{folder}/{name}" if folder else name)

    @property
    def kind(self) -> str:
        """The kind of storage, whatever the scheme's spelling."""
        return _KINDS.get(self.scheme, self.scheme)

    @property
    def place(self) -> str:
        """The bucket, as it was spelled; all local folders are one place."""
        return f"{self.scheme}://{self.bucket}"

    @property
    def path(self) -> Path:
        """The file of a local URI."""
        assert self.kind == LOCAL, self
        return Path(f"/{self.key}")

    def relative_to(self, folder: "Uri") -> str:
        """The name below a folder. PermanentError (`storage_uri`) if it lies elsewhere."""
        if not is_below(str(self), str(folder)):
            raise PermanentError(f"{self} is not below {folder}", code="storage_uri")
        return self.key.removeprefix(folder.key.rstrip("/")).lstrip("/")


def full_uri(location: str) -> str:
    """A folder's or Hadoop's form (`/a/b`, `file:/a/b`) as `file:///a/b`; other URIs as they are."""
    if location.startswith("file:") and not location.startswith("file://"):
        location = location.removeprefix("file:")
    if "://" in location:
        return location
    return f"file://{Path(location).absolute()}"


def kind_of(location: str) -> str:
    """The kind of storage of a location in any spelling: `LOCAL`, `S3`, …, or another scheme as it is."""
    scheme, colon, _ = location.partition(":")
    return _KINDS.get(scheme, scheme) if colon and "/" not in scheme else LOCAL


def is_served(uri: str) -> bool:
    """Whether it is a full URI of a storage that Calve has an implementation for; says nothing about its
    key."""
    scheme, _, rest = uri.partition("://")
    return scheme in _KINDS and (rest.startswith("/") if scheme == LOCAL else rest[:1] not in ("", "/"))


def comparable(location: str) -> str:
    """The form in which locations are compared: Spark writes `file:/x` where PyIceberg writes `file:///x`,
    Hadoop `s3a://` where others write `s3://`. Not for opening: that takes the path as it was written."""
    scheme, colon, rest = location.partition(":")
    if not colon or "/" in scheme:
        return f"file:/{location.lstrip('/')}" if location.startswith("/") else location
    if scheme == LOCAL:
        return f"file:/{rest.lstrip('/')}"
    kind = _KINDS.get(scheme, scheme)
    if kind == AZURE:  # the two addresses of an account
        authority, slash, key = rest.removeprefix("//").partition("/")
        rest = f"//{authority.replace('.blob.', '.dfs.', 1)}{slash}{key}"
    return f"{kind}:{rest}"


def is_below(location: str, folder: str) -> bool:
    """Whether a location lies in a folder, or is that folder: `s3://bucket/a` lies in `s3://bucket`, and
    `s3://bucket-of-another/a` does not (T9)."""
    inner, outer = (f"{comparable(text).rstrip('/')}/" for text in (location, folder))
    return inner.startswith(outer) and not leads_out(inner)


def leads_out(name: str) -> bool:
    """Whether a relative name leads upwards."""
    return ".." in name.split("/")
