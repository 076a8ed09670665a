"""`[source.<name>]` with an `http://` or `https://` URL: replicas, and fail-over between them."""

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager

from calve.clickhouse.pins.pin import FROZEN_READER, Pinned, PinRequest
from calve.clickhouse.reader import Reader, unknown_mode
from calve.clickhouse.server import live, pin
from calve.clickhouse.server.client import Address, Credentials, ReplicaClient, parse_url
from calve.clickhouse.server.session import ServerOptions, ServerSession
from calve.clickhouse.server.visit import ServerVisit
from calve.destination.plan import Relation
from calve.model import reach
from calve.model.errors import CalveError, RefusedError, UnavailableError

__all__ = ["ServerOptions", "ServerSession", "ServerSource"]


class ServerSource:
    """One server, or several replicas of one cluster."""

    immutable = False

    def __init__(self, name: str, options: ServerOptions) -> None:
        self.name = name
        self.need = reach.source(name)
        self.options = options
        self.credentials = Credentials(user=options.user, password=options.password)
        self.addresses = parse_url(options.url, name)

    @contextmanager
    def visit(self, replica: str | None = None) -> Iterator[ServerVisit]:
        """Go to the first replica that answers; with `replica`, to that one alone: a pin is where it
        was taken, so after the pin nobody fails over."""
        yield self._session(replica)

    def visits(self) -> Sequence[AbstractContextManager[ServerVisit]]:
        return [self.visit(address.url) for address in self.addresses]

    def establish(self) -> None:
        """A server is there already."""

    def pin(self, request: PinRequest, name: str) -> Pinned:
        """Fails over between replicas up to the pin and never after it."""
        with self.visit() as session:
            return pin.pin(session, request, name)

    def release(self, name: str, detail: str) -> None:
        """Where the journal does not say at which replica, at all of them: a worker that died while taking it
        may have been at any. One that is down keeps none of the others from being looked at."""
        known = pin.replica_of(detail)
        missed: CalveError | None = None
        for replica in [known] if known else [address.url for address in self.addresses]:
            try:
                with self.visit(replica) as session:
                    pin.release(session, name, detail)
            except CalveError as error:
                missed = missed or error
        if missed is not None:
            raise missed

    def _session(self, replica: str | None) -> ServerVisit:
        wanted = [address for address in self.addresses if replica in (None, address.url)]
        if not wanted:
            raise RefusedError(
                f"the pin was taken at {replica}, which source {self.name} no longer names",
                code="replica_gone",
                hint=f"put it back into the url of [source.{self.name}]",
            )
        missed: list[UnavailableError] = []
        for address in wanted:
            try:
                return ServerVisit(self.name, self.options, self.client(address))
            except UnavailableError as error:
                missed.append(error)
        if len(missed) == 1:
            raise missed[0]
        raise UnavailableError(
            f"none of the {len(missed)} replicas of source {self.name} answers: "
            + "; ".join(error.message for error in missed),
            code=missed[0].code,
            hint=missed[0].hint,
            service=missed[0].service,
        )

    def reader(self, relation: Relation) -> Reader:
        match relation.mode:
            case "frozen":
                return Reader(function=FROZEN_READER)
            case live.MODE:
                return Reader(function=live.READER, access=self._access())
            case mode:
                raise unknown_mode(mode)

    def _access(self) -> dict[str, str]:
        """What an executor needs to read live."""
        options = self.options
        return {
            "user": options.user,
            "password": options.password,
            "ca_file": options.ca_file,
            "connect_seconds": str(options.connect_seconds),
            "read_seconds": str(options.stall_seconds),
        }

    def client(self, address: Address) -> ReplicaClient:
        return ReplicaClient(
            address,
            source=self.name,
            credentials=self.credentials,
            database=self.options.database,
            ca_file=self.options.ca_file,
            connect_seconds=self.options.connect_seconds,
        )
