"""Small expressions as a tree: partition keys, sorting keys, `--partition-by`.

Only what a key needs: names, numbers, calls and tuples. Anything else is `None`: a key that
this version does not understand, which is never an error by itself.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from calve.clickhouse.sql.tokens import Sort, Token, split_arguments, tokens


@dataclass(frozen=True)
class Name:
    name: str


@dataclass(frozen=True)
class Number:
    value: int


@dataclass(frozen=True)
class Text:
    value: str


@dataclass(frozen=True)
class Call:
    function: str
    arguments: tuple["Expression | None", ...]


Expression = Name | Number | Text | Call


def members(key: str) -> list[str]:
    """The members of a key: of a tuple, or of a list without brackets, or the key alone."""
    text = key.strip()
    words = list(tokens(text))
    if words and words[0].text == "(" and _closes_last(words, 0):
        text = text[words[0].end : words[-1].start]
    elif len(words) > 1 and words[0].text == "tuple" and words[1].text == "(" and _closes_last(words, 1):
        text = text[words[1].end : words[-1].start]
    return [member for member in split_arguments(text) if member]


def parse(text: str) -> Expression | None:
    """The tree of one member; None if it is anything else than names, numbers and calls."""
    words = list(tokens(text))
    match words:
        case []:
            return None
        case [Token(sort=Sort.NUMBER, text=digits)] if digits.isdigit():
            return Number(int(digits))
        case [Token(sort=Sort.STRING) as word]:
            return Text(word.value)
        case [Token(sort=Sort.NAME | Sort.QUOTED) as word]:
            return Name(word.value)
        case [Token(sort=Sort.NAME) as word, Token(text="("), *_] if _closes_last(words, 1):
            inner = text[words[1].end : words[-1].start]
            return Call(word.text, tuple(parse(argument) for argument in split_arguments(inner)))
        case [Token(text="("), *_] if _closes_last(words, 0):
            return parse(text[words[0].end : words[-1].start])
        case _:
            return _dotted(words)


def _dotted(words: Sequence[Token]) -> Expression | None:
    """`n.a`, the name of a flattened column."""
    names, dots = words[::2], words[1::2]
    if all(word.sort in (Sort.NAME, Sort.QUOTED) for word in names) and all(dot.text == "." for dot in dots):
        return Name(".".join(word.value for word in names)) if len(names) == len(dots) + 1 else None
    return None


def _closes_last(words: Sequence[Token], opening: int) -> bool:
    """Whether the bracket at `opening` is closed by the very last word."""
    depth = 0
    for place in range(opening, len(words)):
        if words[place].sort is Sort.SIGN:
            depth += (words[place].text == "(") - (words[place].text == ")")
        if depth == 0:
            return place == len(words) - 1
    return False
