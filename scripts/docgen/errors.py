"""docs/reference/errors.md: every error code, found where it is raised."""

import ast
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

from calve.archive import location
from calve.clickhouse import errors as source_errors
from calve.model import errors

HEAD = """\
# Errors

An error names the object and the cause, then a `hint:` says what to do. In JSON it is
`{"code", "message", "hint", "retryable", "outcome"}`; codes are stable. `outcome` says whether the
effect that failed took place: `not_applied`, `applied`, or `unknown`, in which case nothing is
deleted or repeated before it has been looked up.

| code | kind | exit | retried | says |
| --- | --- | --- | --- | --- |
"""


@dataclass(frozen=True, kw_only=True)
class Raised:
    code: str
    kind: str
    message: str


def page(source: Path) -> str:
    by_code: dict[tuple[str, str], list[str]] = defaultdict(list)
    for path in sorted(source.rglob("*.py")):
        if "testing" not in path.parts:
            for raised in _raised(ast.parse(path.read_text(encoding="utf-8"))):
                by_code[(raised.code, raised.kind)].append(raised.message)
    return HEAD + "".join(_row(code, kind, messages) for (code, kind), messages in sorted(by_code.items()))


def _raised(tree: ast.AST) -> list[Raised]:
    return [
        Raised(code=code, kind=node.func.id, message=_text(node.args[0]) if node.args else "")
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and _is_error(node.func.id)
        for code in _codes(node)
    ]


def _is_error(name: str) -> bool:
    return _kind(name) is not None


def _kind(name: str) -> type[errors.CalveError] | None:
    found = [getattr(module, name, None) for module in (errors, source_errors, location)]
    kind = next((one for one in found if one is not None), None)
    return kind if isinstance(kind, type) and issubclass(kind, errors.CalveError) else None


def _codes(node: ast.Call) -> list[str]:
    return [
        keyword.value.value
        for keyword in node.keywords
        if keyword.arg == "code"
        and isinstance(keyword.value, ast.Constant)
        and isinstance(keyword.value.value, str)
    ]


def _text(node: ast.expr) -> str:
    """The message as it is written, with {…} where a value goes."""
    if isinstance(node, ast.Constant):
        return str(node.value)
    if isinstance(node, ast.JoinedStr):
        return "".join(_text(part) if isinstance(part, ast.Constant) else "…" for part in node.values)
    if isinstance(node, ast.BinOp):
        return _text(node.left) + _text(node.right)
    return "…"


def _row(code: str, kind: str, messages: list[str]) -> str:
    found = _kind(kind)
    assert found is not None
    says = "; ".join(dict.fromkeys(" ".join(message.split()).replace("|", "\\|") for message in messages))
    return f"| `{code}` | {kind} | {found.exit_code} | {'yes' if found.retryable else 'no'} | {says} |\n"
