"""`calve config`."""

from calve.cli import output, words
from calve.cli.command import Session, command


@command("config", examples=["calve config", "calve config --json", "CALVE_LIMITS__SLOTS=4 calve config"])
def config(session: Session) -> None:
    """Show each setting and where it came from. Secrets are masked."""
    found = session.config
    document = {
        "file": str(found.file) if found.file else None,
        "settings": {
            setting.key: {"value": setting.shown, "origin": setting.origin} for setting in found.settings
        },
    }
    rows = [(setting.key, _text(setting.shown), setting.origin) for setting in found.settings]
    if not session.json:
        output.say(f"{found.file or 'no file: from the environment alone'}")
    session.answer(document, words.table(("KEY", "VALUE", "ORIGIN"), rows))


def _text(value: object) -> str:
    from calve.app.config.template import toml_value

    return toml_value(value)
