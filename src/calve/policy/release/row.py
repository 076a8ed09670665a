"""The row of a release, and what was announced of it, as the kinds about releases read them."""

from calve.model.change import Achieved
from calve.model.process import Process
from calve.model.tier import Release
from calve.policy.release.plan import ReleaseRequest
from calve.policy.release.ports import ReleasePorts


def find_release(ports: ReleasePorts, request: ReleaseRequest, process_id: str) -> Release | None:
    """The release that this process made."""
    found = ports.releases(request.identity, request.destination)
    return next((one for one in found if one.process_id == process_id), None)


def looked_at(ports: ReleasePorts, process: Process) -> list[Achieved]:
    """The end of all that the process announced before: it has looked by now."""
    open_ = [one for one in ports.intents(process.id) if one.done_at is None]
    return [Achieved(intent=one.seq, result="looked at") for one in open_]
