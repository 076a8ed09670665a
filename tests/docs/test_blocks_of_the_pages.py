"""Commands and configurations that the pages show are ones that Calve takes."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from calve.app.config.load import load_config
from calve.cli.main import calve
from calve.model.errors import UsageError

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
_BLOCK = re.compile(r"^```(\w*)\n(.*?)^```", re.DOTALL | re.MULTILINE)
_SPAN = re.compile(r"`(calve [^`]+)`")
_NAMED_BY_POLICIES = """
[source.main]
url = "http://one:8123"
[catalog.lake]
type = "sql"
uri = "sqlite:///lake.db"
warehouse = "warehouse"
"""
_SECRET = re.compile(r'"(/run/secrets/\w+)"')


def blocks(language: str) -> Iterator[tuple[str, str]]:
    """Each block of that language, with where it stands."""
    for page in PAGES:
        for number, found in enumerate(_BLOCK.finditer(page.read_text(encoding="utf-8")), start=1):
            if found[1] == language:
                yield f"{page.name}-{number}", found[2]


def pasted() -> Iterator[tuple[str, str]]:
    """Every line that begins with `calve`, and the service file's."""
    for place, text in blocks("sh"):
        yield from ((place, line) for line in text.splitlines() if line.startswith("calve "))
    for place, text in blocks("ini"):
        for line in re.findall(r"^ExecStart=.*/(calve .*)$", text, re.MULTILINE):
            yield place, line


def mentioned() -> list[str]:
    """What running text has in backquotes: often without its arguments."""
    texts = (_BLOCK.sub("", page.read_text(encoding="utf-8")) for page in PAGES)
    return sorted({found for text in texts for found in _SPAN.findall(text)})


def understood(line: str) -> click.Context:
    """The command of a line with its arguments taken apart, as `calve` does it, and not run."""
    words = shlex.split(line, comments=True)[1:]
    context = click.Context(calve, info_name="calve")
    while isinstance(context.command, click.Group):
        _, words, _ = context.command.make_parser(context).parse_args(words)
        name, command, words = context.command.resolve_command(context, words)
        assert command is not None
        context = click.Context(command, info_name=name, parent=context)
    return context.command.make_context(context.info_name, words, parent=context.parent)


@pytest.mark.parametrize("line", [pytest.param(line, id=f"{place}: {line}") for place, line in pasted()])
def test_every_command_in_a_block_is_one_that_calve_takes(line: str) -> None:
    assert understood(line).command.name


@pytest.mark.parametrize("span", mentioned())
def test_every_command_in_running_text_has_its_name_and_options(span: str) -> None:
    command: click.Command = calve
    words = span.split()[1:]
    while isinstance(command, click.Group) and words and re.fullmatch(r"[a-z]+", words[0]):
        found = command.get_command(click.Context(command), words.pop(0))
        assert found is not None, span
        command = found
    known = {option for parameter in command.params for option in parameter.opts} | {"--help"}
    assert {word for word in words if word.startswith("--")} <= known


def test_a_command_that_does_not_exist_would_be_found() -> None:
    for line in ("calve exprot db.t", "calve ps --everything", "calve export"):
        with pytest.raises(click.UsageError):
            understood(line)


@pytest.mark.parametrize(("place", "text"), [pytest.param(*block, id=block[0]) for block in blocks("toml")])
def test_every_configuration_is_one_that_calve_takes(place: str, text: str, tmp_path: Path) -> None:
    load(text, tmp_path)
    lines = text.splitlines()
    for commented in [line for line in lines if re.match(r'# ["\w.-]+ = ', line)]:
        load(text.replace(commented, commented.removeprefix("# ")), tmp_path)


def test_a_configuration_with_a_wrong_key_would_be_found(tmp_path: Path) -> None:
    with pytest.raises(UsageError):
        load('[source.main]\nurl = "http://one:8123"\npasword_file = "x"\n', tmp_path)


def load(text: str, folder: Path) -> None:
    """As a file in a folder; secrets that it names lie there, and what a policy names is in the file too."""
    (folder / "secret").write_text("a secret\n")
    if "[policy." in text and "[source." not in text:
        text += _NAMED_BY_POLICIES
    (folder / "calve.toml").write_text(_SECRET.sub('"secret"', text))
    assert load_config(folder / "calve.toml", environ={}, cwd=folder)
