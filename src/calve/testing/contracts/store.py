"""The whole contract of a store. Inherit it, give `store`, and every obligation is tested:

    class TestMyStore(StoreContract):
        @pytest.fixture
        def store(self, clock): ...

`clock` moves the store's own clock: `clock.now` is the in-memory store's, `clock.offset_seconds`
is added to a database's.
"""

from calve.testing.contracts.changes import ChangesContract
from calve.testing.contracts.feed import FeedContract
from calve.testing.contracts.history import HistoryContract
from calve.testing.contracts.leases import LeasesContract
from calve.testing.contracts.notices import NoticesContract
from calve.testing.contracts.races import RacesContract
from calve.testing.contracts.reads import ReadsContract
from calve.testing.contracts.registry import RegistryContract
from calve.testing.contracts.releases import ReleasesContract
from calve.testing.contracts.seen import SeenContract
from calve.testing.contracts.starts import StartsContract
from calve.testing.contracts.submissions import SubmissionsContract
from calve.testing.contracts.tier import TierContract


class StoreContract(
    SubmissionsContract,
    LeasesContract,
    ChangesContract,
    ReleasesContract,
    ReadsContract,
    HistoryContract,
    RacesContract,
    RegistryContract,
    NoticesContract,
    FeedContract,
    SeenContract,
    StartsContract,
    TierContract,
):
    """Themes, each in a file of its own."""
