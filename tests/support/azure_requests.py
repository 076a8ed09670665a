"""Requests to Azure that our own client never makes, signed with the account's key."""

import base64
import hashlib
import hmac
from email.utils import formatdate
from urllib.parse import urlsplit

import requests

_VERSION = "2021-08-06"


def create_container(endpoint: str, account: str, key: str, name: str) -> None:
    """Make a container; one that is there already is fine."""
    url = f"{endpoint}/{name}"
    headers = {"x-ms-date": formatdate(usegmt=True), "x-ms-version": _VERSION}
    lines = [f"{header}:{value}" for header, value in sorted(headers.items())]
    resource = f"/{account}{urlsplit(url).path}\nrestype:container"
    text = "\n".join(["PUT", *[""] * 11, *lines, resource])
    signature = hmac.digest(base64.b64decode(key), text.encode(), hashlib.sha256)
    headers["Authorization"] = f"SharedKey {account}:{base64.b64encode(signature).decode()}"
    answer = requests.put(url, params={"restype": "container"}, headers=headers, timeout=30)
    if answer.status_code not in (201, 409):
        raise RuntimeError(f"container {name} was not created: {answer.status_code} {answer.text}")
