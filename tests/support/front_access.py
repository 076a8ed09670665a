"""Grants that the engine itself checks: its configuration with one role for each account of the front.

The embedded engine knows one user, `default`, and keeps no users or grants by SQL; but it reads roles
out of a users file, and a connection may put any of them on. Without rights of its own, that user
has exactly the rights of the role it wears, and refusals are the engine's own.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from xml.sax.saxutils import escape

EVERYTHING = "front_everything"
_ALL = "GRANT ALL ON *.* WITH GRANT OPTION"


def write_access(folder: Path, grants: Mapping[str, Sequence[str]]) -> Path:
    """The configuration to start the engine with. `grants` are statements without their `TO …`."""
    users = folder / "users.xml"
    users.write_text(_users({EVERYTHING: (_ALL,)} | dict(grants)), encoding="utf-8")
    config = folder / "config.xml"
    config.write_text(f"<clickhouse><users_config>{escape(str(users))}</users_config></clickhouse>\n")
    return config


def _users(grants: Mapping[str, Sequence[str]]) -> str:
    roles = "".join(
        f"<{name}><grants>{''.join(f'<query>{escape(text)}</query>' for text in given)}</grants></{name}>"
        for name, given in grants.items()
    )
    default = (
        "<password></password><networks><ip>::/0</ip></networks><profile>default</profile>"
        f"<quota>default</quota><grants><query>GRANT {', '.join(grants)}</query></grants>"
    )
    return (
        f"<clickhouse><profiles><default/></profiles><quotas><default/></quotas><roles>{roles}</roles>"
        f"<users><default>{default}</default></users></clickhouse>\n"
    )
