"""A whole export whose server is killed in mid-read, and comes back."""

import threading
from pathlib import Path

from served import Served, at_the_source, events, in_the_lake

from calve.control.ports import Runner
from calve.model.states import ProcessState
from support.network_proxy import Fault, NetworkProxy
from support.server_place import MeddlingRunner

QUICK = {"CALVE_LIMITS__BACKOFF_FIRST_SECONDS": "0.1", "CALVE_LIMITS__PROBE_SECONDS": "0.2"}


def export_through_the_death_of_its_server(served: Served, folder: Path, runner: Runner) -> None:
    with NetworkProxy(int(served.url.rsplit(":", 1)[1])) as proxy:
        place = served.place(folder, runner, url=proxy.url, **QUICK)
        table = events(place)
        before = at_the_source(place, table)
        dying: list[threading.Thread] = []

        def die_in_mid_read() -> None:
            """The stream falls silent after its first bytes; once it has, the server is gone."""
            sent = proxy.counts.answer_bytes
            proxy.set(Fault(hang_answer_after_bytes=1000))

            def kill() -> None:
                proxy.wait_for_answer_bytes(sent + 1000, seconds=120)
                served.kill()
                proxy.heal()
                proxy.cut_open()

            dying.append(threading.Thread(target=kill))
            dying[0].start()

        def come_back() -> None:
            dying[0].join(120)
            served.start()

        place.runner = meddling = MeddlingRunner(runner, before=die_in_mid_read, after=come_back)
        [process] = place.export(table, "202401")
        assert process.state is ProcessState.COMPLETED, process.error
        assert meddling.waves > 1
        assert in_the_lake(place) == before  # every row, once
        assert place.pins == []
