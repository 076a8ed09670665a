import json
import pickle

import pytest

from calve.model import errors
from calve.model.errors import CalveError, ErrorInfo, Outcome


def all_kinds(root: type[CalveError] = CalveError) -> list[type[CalveError]]:
    return [root] + [kind for child in root.__subclasses__() for kind in all_kinds(child)]


KINDS = [kind for kind in all_kinds() if kind.__module__ == errors.__name__]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_P21_an_error_crosses_a_process_border_whole(kind: type[CalveError]) -> None:
    error = kind("it broke: ümläut", code="broken", hint="calve doctor", service="catalog:lake")
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is kind
    assert again.info == error.info
    assert str(again) == str(error)
    assert (again.retryable, again.outcome, again.exit_code) == (
        error.retryable,
        error.outcome,
        error.exit_code,
    )


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_an_error_at_rest_round_trips_through_json(kind: type[CalveError]) -> None:
    info = kind("it broke", code="broken", hint="calve doctor", service="catalog:lake").info
    assert ErrorInfo.from_json(json.loads(json.dumps(info.to_json()))) == info


def test_an_error_of_another_version_is_read() -> None:
    info = ErrorInfo.from_json({"code": "c", "message": "m", "added_later": 1})
    assert info == ErrorInfo(code="c", message="m")


def test_the_tree_is_drawn_in_the_docstring() -> None:
    for kind in KINDS:
        assert kind.__name__ in (errors.__doc__ or "")


def test_a_lost_acknowledgement_is_a_store_error_whose_outcome_is_unknown() -> None:
    error = errors.StoreUnknownError("lost", code="store_unknown")
    assert isinstance(error, errors.StoreError)
    assert (error.outcome, error.retryable) == (Outcome.UNKNOWN, True)


def test_what_must_stop_is_not_retried() -> None:
    assert not errors.FenceLostError("taken", code="fence_lost").retryable
    assert errors.ConflictError("moved", code="conflict").retryable
