"""The small pieces that a page has by the hundred: an icon, a name, a time, a size. As functions: a macro of a template
takes five times as long, and a list of a hundred tables was made of macros for the most part.

Text from outside is escaped here. What is equal is made once.
"""

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

from jinja2 import pass_context
from jinja2.runtime import Context
from markupsafe import Markup, escape

from calve.web import words
from calve.web.words import Appearance

_KEPT = 4096  # of each, of some hundred bytes
_LONG = 300  # characters of a name that is made anew each time: the ones that are kept stay small


@lru_cache(_KEPT)
def icon(name: str, cls: str = "") -> Markup:
    return Markup(
        f'<svg class="icon{" " if cls else ""}{escape(cls)}" aria-hidden="true" focusable="false">'
        f'<use href="#i-{escape(name)}"/></svg>'
    )


@lru_cache(_KEPT)
def chip(look: Appearance) -> Markup:
    return Markup(
        f'<span class="state {escape(look.tone)}">{icon(look.icon)}<span>{escape(look.word)}</span></span>'
    )


def state(process: Mapping[str, Any]) -> Markup:
    return chip(words.process_look(process))


@pass_context
def time(context: Context, at: str | None, otherwise: str = "–") -> Markup | str:
    """How long ago by the clock of the document, and exactly on hover."""
    if not at:
        return otherwise
    title, said = escape(words.exact(at)), escape(words.ago(at, context["now"]))
    return Markup(f'<time datetime="{escape(at)}" title="{title}">{said}</time>')


def name(text: object, most: int = words.NAME) -> Markup:
    """From outside: nothing of it is hidden, a line may break after its dots, and all of it is there on hover."""
    shown = str(text)
    return _name(shown, most) if len(shown) <= _LONG else _made_name(shown, most)


def _made_name(text: str, most: int) -> Markup:
    broken = "<wbr>".join(escape(piece) for piece in words.pieces(words.cut(text, most)))
    mixed = " mixed" if words.mixed(text) else ""
    return Markup(f'<bdi class="name{mixed}" title="{escape(words.title(text))}">{broken}</bdi>')


_name = lru_cache(_KEPT)(_made_name)


@lru_cache(_KEPT)
def coded(text: str) -> Markup:
    """What stands between backquotes is a command."""
    pieces = words.message(text).split("`")
    return Markup("").join(
        Markup("<code>{}</code>").format(one) if at % 2 and at + 1 < len(pieces) else escape(one)
        for at, one in enumerate(pieces)
    )


@lru_cache(_KEPT)
def amount(number: float, word: str = "") -> Markup:
    unit = f" {escape(word)}" if word else ""
    return Markup(f'<span title="{words.count(number)}{unit}">{words.short(number)}{unit}</span>')


@lru_cache(_KEPT)
def size(number: float) -> Markup:
    return Markup(f'<span title="{words.count(number)} bytes">{words.size(number)}</span>')


MARKS: Mapping[str, Callable[..., Any]] = {
    "coded": coded, "icon": icon, "chip": chip, "state": state, "time": time, "name": name, "amount": amount, "size": size
}  # fmt: skip
