from pathlib import Path

import pytest

from calve.clickhouse.embedded.source import EmbeddedSource
from calve.testing.contracts.source import FILL, LiveSourceContract, run

pytestmark = pytest.mark.programs


class TestEmbeddedSource(LiveSourceContract):
    @pytest.fixture
    def source(self, tmp_path: Path) -> EmbeddedSource:
        source = EmbeddedSource("main", tmp_path / "clickhouse", create=True)
        run(source, *FILL)
        return source
