"""For pytest (`-p support.year.plugin`): the rule that `CALVE_MISTAKE` names is removed before a test is imported."""

import os
from contextlib import ExitStack

from support.year import mistakes_elsewhere
from support.year.mistakes import planted

assert mistakes_elsewhere
_STACK = ExitStack()


def pytest_configure() -> None:
    _STACK.enter_context(planted(os.environ["CALVE_MISTAKE"]))


def pytest_unconfigure() -> None:
    _STACK.close()
