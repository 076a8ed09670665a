"""The whole contract of a store. Inherit it, give `store`, and every obligation is tested:

    class TestMyStore(StoreContract):
        @pytest.fixture
        def store(self, clock): ...

`clock` moves the store's own clock: `clock.now` is the in-memory store's, `clock.offset_seconds`
is added to a database's.
"""

from calve.testing.contracts.applying import ApplyingContract
from calve.testing.contracts.forgetting import ForgettingContract
from calve.testing.contracts.leasing import LeasingContract
from calve.testing.contracts.races import RacesContract
from calve.testing.contracts.reading import ReadingContract
from calve.testing.contracts.releasing import ReleasingContract
from calve.testing.contracts.submitting import SubmittingContract


class StoreContract(
    SubmittingContract,
    LeasingContract,
    ApplyingContract,
    ReleasingContract,
    ReadingContract,
    ForgettingContract,
    RacesContract,
):
    """Themes, each in a file of its own."""
