"""A statement without progress is given up; one that is slow is not."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from executor import Executor

from calve.model.errors import STALLED, TemporaryError

_STALL_SECONDS = 1.0


@pytest.fixture
def own_executor(tmp_path: Path) -> Iterator[Executor]:
    """An engine that a statement stalls in is of no more use."""
    running = Executor.start(TMPDIR=str(tmp_path))
    yield running
    running.child.kill()
    running.stop()


def test_a_statement_that_goes_on_slowly_may_take_longer_than_the_limit(executor: Executor) -> None:
    slow = "SELECT sum(sleepEachRow(0.1)) AS slept FROM numbers(30)"
    settings = {"max_block_size": "1", "max_threads": "1"}
    rows = executor.ask("rows", sql=slow, settings=settings, stall_seconds=_STALL_SECONDS)
    assert rows == [{"slept": 0}]


def test_a_statement_that_waits_without_progress_is_stopped_and_may_be_retried(
    own_executor: Executor,
) -> None:
    with pytest.raises(TemporaryError, match=r"1 s of waiting in which nothing was read") as stopped:
        own_executor.ask("rows", sql="SELECT sleep(3)", settings={}, stall_seconds=_STALL_SECONDS)
    assert stopped.value.code == STALLED
    with pytest.raises(TemporaryError) as again:
        own_executor.ask("rows", sql="SELECT 1", settings={})
    assert again.value.message == stopped.value.message
