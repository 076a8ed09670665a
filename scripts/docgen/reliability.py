"""docs/reliability.md: what is promised, and what was seen of it.

The words are in reliability.toml. Tests, invariants, planted mistakes and figures are looked up, so that none is named
that is not there, and none is copied by hand."""

import json
import re
import tomllib
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from calve.testing import faults

Row = tuple[str, ...]

HEAD = """\
# Reliability

What Calve promises, what was done to break it, and what is not known. Everything here is made from the tests, from the
[model](../formal/README.md), from the [simulator](simulator.md) and from the figures that they leave in `docs/figures`.
"""
WAYS = {
    "before": "died before",
    "after": "died after",
    "reported_failed": "done, reported as failed",
    "failed": "failed",
}
SIGNALS = "SIGKILL", "SIGSTOP", "SIGTERM", "SIGINT"


def page(root: Path, tests: Mapping[str, list[str]]) -> str:
    words = tomllib.loads((root / "scripts" / "docgen" / "reliability.toml").read_text(encoding="utf-8"))
    figures = {
        path.stem: json.loads(path.read_text(encoding="utf-8"))
        for path in sorted((root / "docs" / "figures").glob("*.json"))
    }
    model = _of_model(root)
    simulated = _of_seeds(root / "docs" / "simulator.md")
    years = _of_seeds(root / "docs" / "year.md")
    mutated = figures.pop("mutants", {})
    parts = [
        HEAD,
        _promises(words["promise"], tests, Named(root), model, {**simulated, **years}),
        _counters(figures),
        _matrix(figures.get("suite", {})),
        _mistakes(model, simulated, years),
        _mutants(mutated),
        _incidents(words["incident"], tests),
        "## What is not promised\n\n" + _bullets(words["not_promised"]),
        "## Blind spots\n\n" + _bullets(words["blind_spot"]),
        _found(words["found"]),
    ]
    return "\n".join(parts)


def _promises(
    promises: Iterable[Mapping[str, Any]],
    tests: Mapping[str, list[str]],
    named: "Named",
    model: "Model",
    simulated: Mapping[str, Any],
) -> str:
    rows = []
    for number, one in enumerate(promises, 1):
        invariants = one.get("model", [])
        mistakes = one.get("mistakes", [])
        _known(invariants, model.properties, "an invariant of formal/README.md")
        _known(mistakes, model.mistakes | simulated.keys(), "a planted mistake")
        rows.append(
            (
                str(number),
                one["text"],
                ", ".join([*_tests(one.get("lessons", ()), tests), *named.files(one.get("tests", ()))]),
                _code(invariants),
                _code(mistakes),
            )
        )
    return "## Promises\n\n" + _table(("", "promise", "lessons and tests", "model", "planted mistakes"), rows)


def _counters(figures: Mapping[str, Any]) -> str:
    rows: list[Row] = []
    suite = figures.get("suite", {})
    if suite:
        broken = suite.get("break", {})
        points = sum(sum(ways.values()) for ways in broken.values())
        command = "`make figures`"
        rows += [
            ("tests that passed", _number(suite["tests"]["passed"]), command),
            ("tests that failed", _number(suite["tests"].get("failed", 0)), command),
            ("crashes and failures injected, one call after another", _number(points), command),
            ("different calls that were broken", _number(len(broken)), command),
            (
                "commits whose answer or landing was changed",
                _number(sum(sum(ways.values()) for ways in suite.get("commit", {}).values())),
                command,
            ),
            (
                "HTTP answers replaced by 4xx and 5xx, connections cut",
                _number(sum(suite.get("answer", {}).values()) + sum(suite.get("connection", {}).values())),
                command,
            ),
            *(
                (f"{signal} sent to programs", _number(suite["signal"][signal]), command)
                for signal in SIGNALS
                if signal in suite.get("signal", {})
            ),
            *(
                (f"rows read back by {reader} and compared", _number(rows_read), command)
                for reader, rows_read in suite.get("rows read back", {}).items()
            ),
        ]
    for name, one in figures.items():
        if name != "suite":
            rows += [
                (f"{name}: {what}", _number(value), f"`{one['command']}`")
                for what, value in (one["figures"] if "figures" in one else _of_chaos(one)).items()
            ]
    return "## Counters\n\nOf the last runs.\n\n" + _table(("what", "how many", "command"), rows)


def _of_chaos(run: Mapping[str, Any]) -> dict[str, Any]:
    """Of the document that `make chaos` leaves: what was done, and what came of it."""
    broken = {what: times for what, times in run["counts"].items() if ":" not in what}
    ended = {
        f"{kind} {state.lower()}": times
        for kind, states in run["processes"].items()
        for state, times in states.items()
    }
    rows = {f"rows {what.replace('rows_', '')}": run[what] for what in ("rows_compared", "lost", "doubled")}
    return {"minutes": run["minutes"], **broken, **ended, **rows}


def _matrix(suite: Mapping[str, Any]) -> str:
    """The empty cells are the point of it."""
    broken = suite.get("break", {})
    calls = (
        broken.keys() | faults.STORE_CALLS | faults.REGISTRY_CALLS | faults.KIND_CALLS | faults.RUNNER_CALLS
    )
    rows = [(f"`{call}`", *(_cell(broken.get(call, {}).get(way)) for way in WAYS)) for call in sorted(calls)]
    commits = suite.get("commit", {})
    landings = sorted({landing for ways in commits.values() for landing in ways})
    sent = [
        (told, *(_cell(ways.get(landing)) for landing in landings)) for told, ways in sorted(commits.items())
    ]
    return (
        "## The failure matrix\n\nHow often each call of the control plane's ports was broken, and how, in one run of `make test`."
        " A dash: never.\n\n"
        + _table(("call", *WAYS.values()), rows)
        + "\nWhat the catalog was made to answer to a commit, beside what really became of it:\n\n"
        + _table(("told", *landings), sent)
    )


def _mistakes(
    model: "Model", simulated: Mapping[str, tuple[str, str]], years: Mapping[str, tuple[str, str]]
) -> str:
    rows = []
    for name in sorted(model.mistakes | simulated.keys() | years.keys()):
        (said, seeds), (told, year) = (found.get(name, ("", "–")) for found in (simulated, years))
        words = model.words.get(name) or said or told
        rows.append((f"`{name}`", words, model.steps.get(name, "–"), seeds, year))
    return (
        "## Planted mistakes\n\nWhat finds each: the model in so many steps, the simulator and the [year](year.md) of policies in so"
        " many seeds.\n\n"
        + _table(("mistake", "in words", "model: steps", "simulator: seeds", "year: seeds"), rows)
    )


def _mutants(found: Mapping[str, Any]) -> str:
    names = ("mutants", "tried", "killed", "explained", "survived")
    modules: Mapping[str, Mapping[str, int]] = found.get("modules", {})
    total = {name: sum(counts[name] for counts in modules.values()) for name in names}
    rows = [
        (f"`{module}`", *(_cell(counts[name]) for name in names), _share(counts))
        for module, counts in (*modules.items(), ("all", total))
    ]
    why = "".join(f"- {times} × {reason}\n" for reason, times in found.get("explained", {}).items())
    return (
        "## Mutants\n\n`make mutants` changes one place of a module at a time (a comparison, a condition, a constant, a member of a set,"
        " a statement left out, None returned), and runs the quick tests that run that line: some must fail. The share is that of"
        " those killed, without those that are explained; where fewer were tried, it was a sample that is always the same, or the code is newer.\n\n"
        + _table(("module", *names, "share"), rows)
        + f"\nExplained, one by one in `tests/support/mutants/explained.toml`:\n\n{why}"
    )


def _share(counts: Mapping[str, int]) -> str:
    noticeable = counts["tried"] - counts["explained"]
    return f"{100 * counts['killed'] / noticeable:.1f} %" if noticeable else "–"


def _incidents(incidents: Iterable[Mapping[str, Any]], tests: Mapping[str, list[str]]) -> str:
    rows = [(one["theirs"], one["ours"], ", ".join(_tests(one["lessons"], tests))) for one in incidents]
    return "## Incidents of others, replayed\n\n" + _table(("theirs", "ours", "tests"), rows)


def _found(found: Iterable[Mapping[str, str]]) -> str:
    rows = [(one["what"], one["by"], one["learned"]) for one in found]
    return "## What our own trials found\n\n" + _table(("what was wrong", "found by", "learned"), rows)


# ---- what is looked up


class Model:
    """The properties and planted mistakes that formal/README.md lists; a test holds that page to the model."""

    def __init__(self, properties: set[str], words: dict[str, str], steps: dict[str, str]) -> None:
        self.properties, self.words, self.steps = properties, words, steps

    @property
    def mistakes(self) -> set[str]:
        return set(self.words)


def _of_model(root: Path) -> Model:
    text = (root / "formal" / "README.md").read_text(encoding="utf-8")
    holds, planted = text.split("## What holds")[1].split("## Planted mistakes")
    rows = re.findall(r"^\| `(\w+)` \| (.+?) \| `\w+` \| (\d+) \|$", planted, re.MULTILINE)
    return Model(
        set(re.findall(r"^\| `(\w+)` \|", holds, re.MULTILINE)),
        {name: words for name, words, _ in rows},
        {name: steps for name, _, steps in rows},
    )


class Named:
    """Tests by their names."""

    def __init__(self, root: Path) -> None:
        self._files: dict[str, set[str]] = {}
        for path in (root / "tests").rglob("test_*.py"):
            for name in re.findall(r"^ *def (test_\w+)", path.read_text(encoding="utf-8"), re.MULTILINE):
                self._files.setdefault(name, set()).add(path.relative_to(root).as_posix())

    def files(self, names: Iterable[str]) -> list[str]:
        """A link to each file, with how many of the tests are there."""
        _known(
            names, {name for name, files in self._files.items() if len(files) == 1}, "the name of one test"
        )
        counts = Counter(file for name in names for file in self._files[name])
        return [f"[{Path(file).stem}](../{file}) ({times})" for file, times in counts.items()]


def _of_seeds(page: Path) -> dict[str, tuple[str, str]]:
    """Each mistake in words, and the seeds it took."""
    text = page.read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(\w+)` \| (.+?) \| (\d+) \| ", text, re.MULTILINE)
    return {name: (words, seeds) for name, words, seeds in rows}


def _known(names: Iterable[str], known: Iterable[str], what: str) -> None:
    if unknown := sorted(set(names) - set(known)):
        raise SystemExit(f"reliability.toml names what is not {what}: {unknown}")


# ---- how it is printed


def _tests(lessons: Iterable[str], tests: Mapping[str, list[str]]) -> list[str]:
    _known(lessons, tests, "a lesson with tests")
    return [f"[{number}](lessons.md) ({len(tests[number])})" for number in lessons]


def _code(names: Iterable[str]) -> str:
    return "<br>".join(f"`{name}`" for name in names)


def _number(value: Any) -> str:
    return f"{value:,}" if isinstance(value, int) else str(value)


def _cell(times: int | None) -> str:
    return f"{times:,}" if times else "–"


def _bullets(items: Iterable[Mapping[str, str]]) -> str:
    return "".join(f"- {one['text']}\n" for one in items)


def _table(head: Row, rows: Iterable[Row]) -> str:
    lines = [head, tuple("---" for _ in head), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)
