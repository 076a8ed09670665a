"""The row of a release, and what was announced of it, as the kinds about releases read them."""

from calve.model.change import Achieved, Result
from calve.model.errors import NotFoundError
from calve.model.process import Process, ProcessId
from calve.model.tier import Release
from calve.policy.release.plan import ReleasePlan, ReleaseRequest
from calve.policy.release.ports import ReleasePorts


def find_release(ports: ReleasePorts, request: ReleaseRequest, process_id: str) -> Release | None:
    """The release that this process made."""
    found = ports.releases(request.identity, request.destination)
    return next((one for one in found if one.process_id == process_id), None)


def found_release(
    ports: ReleasePorts, request: ReleaseRequest, process_id: str
) -> tuple[ReleasePlan, Release]:
    """What that process planned, and how far it came."""
    plan = ports.plan_of(ProcessId(process_id))
    release = find_release(ports, request, process_id)
    if release is None:
        raise NotFoundError(f"process {process_id} released nothing", code="not_released")
    return plan, release


def looked_at(ports: ReleasePorts, process: Process) -> list[Achieved]:
    """The end of all that the process announced before: it has looked by now."""
    open_ = [one for one in ports.intents(process.id) if one.done_at is None]
    return [Achieved(intent=one.seq, result="looked at") for one in open_]


def result_of(release: Release) -> Result:
    return Result(rows=release.rows, files=0, bytes=0)
