from collections.abc import Iterator

import pytest

from support.local_runner import LocalRunner
from support.place import Place, kept_place

MONTHS = ("202401", "202402", "202403")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory, runner: LocalRunner) -> Iterator[Place]:
    """One source for all tests of a file; those that change a table make their own."""
    with kept_place(tmp_path_factory.mktemp("selection"), runner) as place:
        place.execute(
            "CREATE DATABASE db",
            "CREATE TABLE db.events (id UInt64, day Date, wide Int128 DEFAULT id, note String) ENGINE = MergeTree"
            " PARTITION BY toYYYYMM(day) ORDER BY (day, id)",
            *(
                f"INSERT INTO db.events (id, day, note) SELECT number, toDate('2024-0{month}-01') + number % 28, 'x'"
                f" FROM numbers({100 * month})"
                for month in (1, 2, 3)
                for _ in range(2)
            ),
            "CREATE TABLE db.keyless (id UInt64, s String) ENGINE = MergeTree PARTITION BY s ORDER BY id",
            "INSERT INTO db.keyless VALUES (1, 'a'), (2, 'quo\\'te'), (3, '/../x')",
        )
        yield place
