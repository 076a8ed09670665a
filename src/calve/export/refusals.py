"""All refusals of one request in one list, so that a command is fixed once and not five times."""

from collections.abc import Iterator
from contextlib import contextmanager

from calve.model.errors import NotFoundError, RefusedError, UsageError


class Refusals:
    """Refusals of checks that do not need each other."""

    def __init__(self, table: str) -> None:
        self._table = table
        self._met: list[UsageError | RefusedError] = []

    @contextmanager
    def among(self) -> Iterator[None]:
        """A check whose refusal is kept for the list; the rest of the block is skipped."""
        try:
            yield
        except (UsageError, RefusedError) as error:
            self._met.append(error)
        except NotFoundError:
            self.raise_all()  # what was refused before is fixed first
            raise

    def raise_all(self) -> None:
        """One refusal as it is, several as one: a usage error only if all can be fixed in the command."""
        if len(self._met) <= 1:
            for only in self._met:
                raise only
            return
        kind = UsageError if all(isinstance(error, UsageError) for error in self._met) else RefusedError
        head = f"{self._table} cannot be exported as it is:"
        # One that is a list itself, of columns, becomes a part of this one.
        items = [error.message.removeprefix(f"{head}\n  ") for error in self._met]
        hints = "; ".join(dict.fromkeys(error.hint for error in self._met if error.hint))
        raise kind("\n  ".join([head, *items]), code="refused", hint=hints)
