"""What makes no sense in a configuration is refused by the name of its key, with what to write instead."""

from pathlib import Path

import pytest

from calve.app.config import load_config
from calve.model.errors import UsageError

_POLICY = '[policy.p]\nsource = "main:db.t"\nto = "lake.ns.t"\n'
_SCHEDULE = '[backup.schedule.n]\ntables = "db.*"\n'
_SOURCE = '[source.main]\nurl = "chdb://clickhouse"\n'


@pytest.mark.parametrize(
    ("section", "line", "said", "hint"),
    [
        (
            _POLICY,
            'export_after = "-3d"',
            "policy.p (file calve.toml): invalid export_after '-3d'",
            "give a number of",
        ),
        (
            _POLICY,
            'release_after = "9999999d"',
            "invalid release_after '9999999d'",
            "less than a hundred years",
        ),
        (_POLICY, 'look_every = "0s"', "look_every is too short", "give 1s or more"),
        (_POLICY, 'bytes_per_day = "0GB"', "invalid bytes_per_day '0GB'", "more than nothing"),
        (_POLICY, 'bytes_per_day = "999999999PB"', "invalid bytes_per_day", "at most 1000PB"),
        (_POLICY, 'window = "03:00-03:00 UTC"', "invalid window", "two different times"),
        (_POLICY, 'view = "system.x"', "'system.x' is not a valid view name", "db.events_all"),
        (_POLICY, 'view = "db.a.b"', "'db.a.b' is not a valid view name", "db.events_all"),
        (
            _SCHEDULE,
            'every = "0s"',
            "backup.schedule.n (file calve.toml): invalid every '0s'",
            "give a number of",
        ),
        (_SCHEDULE, 'every = "7h"', "invalid every", "what divides a day"),
        (_SCHEDULE, 'at = "31 Feb 02:00 UTC"', "invalid time", "02:00 Europe/Berlin"),
        (_SCHEDULE, 'at = "02:00 Mars/Base"', "unknown time zone 'Mars/Base'", "Europe/Berlin"),
        (_SCHEDULE, 'at = "sun 02:00 UTC"', "names a day of the week", 'every = "1w"'),
        (_SCHEDULE, 'drill_bytes = "0GB"', "invalid drill_bytes '0GB'", "more than nothing"),
        (_SCHEDULE, 'jitter = "1d"', "the jitter is as long as the interval", "shorter"),
    ],
)
def test_the_key_and_what_to_write_are_named(
    tmp_path: Path, section: str, line: str, said: str, hint: str
) -> None:
    (tmp_path / "calve.toml").write_text(_SOURCE + section + line + "\n")
    with pytest.raises(UsageError) as refused:
        load_config(environ={}, cwd=tmp_path)
    assert said in refused.value.message
    assert hint in refused.value.hint
