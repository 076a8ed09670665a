"""`calve token`: who may use `calve serve`."""

import click

from calve.app.arguments import span
from calve.cli import output
from calve.cli.command import CliSession, command, group

ROLES = ("viewer", "operator", "admin")  # named here, in the order of what they may do


@command(
    "new",
    examples=[
        "calve token new --role operator --name airflow",
        "calve token new --role viewer --expires 90d",
    ],
)
@click.option(
    "--role",
    type=click.Choice(ROLES),
    required=True,
    help="viewer: read. operator: also export, back up, optimize, cancel, retry, verify. admin: also restore, delete backups, manage tokens.",
)
@click.option(
    "--name",
    default="",
    metavar="NAME",
    help="Who it is for; shown in the audit. [default: the role and a random text]",
)
@click.option("--expires", metavar="90d", help="Expire after this long: 12h, 90d, 52w. [default: never]")
def new(session: CliSession, role: str, name: str, expires: str | None) -> None:
    """Make a token for `calve serve` and print it, once: only its hash is stored.

    A caller sends it as `Authorization: Bearer TOKEN`; `calve --server` takes it from --token-file,
    CALVE_TOKEN or CALVE_TOKEN_FILE.
    """
    lasts = span(expires, what="time", code="bad_expiry") if expires else None
    made = session.calve.token_new(role, name=name, expires=lasts)
    session.answer(made, made["token"])
    session.say(f"token {made['name']} of role {made['role']}; it is not shown again")
    session.say(f"to revoke it: calve token revoke {made['name']}")


@command("list", examples=["calve token list", "calve token list --json"])
def list_(session: CliSession) -> None:
    """List tokens, also those that are revoked or have expired."""
    found = session.calve.token_list()
    rows = [
        (one["name"], one["role"], _state(one), one["created_at"], one["created_by"], one["expires_at"] or "never")
        for one in found
    ]  # fmt: skip
    head = ("NAME", "ROLE", "STATE", "CREATED", "BY", "EXPIRES")
    session.answer(found, output.table(head, rows) if found else "")
    if not found:
        session.say("There are no tokens. Make one: calve token new --role viewer")


def _state(one: dict[str, object]) -> str:
    return "revoked" if one["revoked_at"] else "valid" if one["valid"] else "expired"


@command("revoke", examples=["calve token revoke airflow"])
@click.argument("names", metavar="NAME…", nargs=-1, required=True)
def revoke(session: CliSession, names: tuple[str, ...]) -> None:
    """Revoke tokens, by name or id. Servers refuse them within five seconds."""
    done = session.calve.token_revoke(names)
    session.answer(done, "\n".join(f"revoked {one['name']}" for one in done))


@group(
    "token",
    commands=(new, list_, revoke),
    examples=[
        "calve token new --role operator --name airflow",
        "calve token list",
        "calve token revoke airflow",
    ],
)
def token() -> None:
    """Make, list and revoke the tokens that a server accepts."""
