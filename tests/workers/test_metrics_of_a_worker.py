"""`[metrics] port`: what a real worker tells of itself."""

import socket

import httpx
import pytest
from programs import Folder
from prometheus_client.parser import text_string_to_metric_families

from calve.metrics.meters import Meters
from calve.metrics.port import told
from support.programs import free_ports


def test_a_worker_tells_what_it_did(folder: Folder) -> None:
    (port,) = free_ports(1)
    worker = folder.worker(CALVE_METRICS__PORT=str(port))
    process_id = folder.submit()
    row = folder.wait_ended(worker, process_id)
    with httpx.Client(base_url=f"http://127.0.0.1:{port}", trust_env=False) as client:
        text = client.get("/metrics").text
        assert client.get("/").status_code == 404
        assert client.post("/metrics").status_code == 501
    found = {
        (sample.name, *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }
    assert found["calve_rows_total", "export"] == row.rows > 0
    assert found["calve_bytes_total", "export"] == row.bytes > 0
    assert found["calve_publish_seconds_count", "export", "done"] == 1
    assert found["calve_task_seconds_count", "export", "done"] == row.tasks.done
    assert (found["calve_slots", "used"], found["calve_slots", "free"]) == (0, 2)
    assert found["calve_store_call_seconds_count", "claim", "ok"] > 0
    assert "process_resident_memory_bytes" in text
    assert process_id not in text, "no label holds an id"
    assert "calve_processes{" not in text, "facts of the store are the servers'"


def test_a_port_that_is_taken_is_an_error_that_names_it(folder: Folder) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        code, _, said = folder.call("worker", "--until-idle", CALVE_METRICS__PORT=str(port))
    assert code == 2 and f"port {port} for metrics" in said and "CALVE_METRICS__PORT" in said


@pytest.mark.timeout(60)
def test_a_peer_that_sends_nothing_or_a_byte_now_and_then_holds_up_nobody_for_long() -> None:
    with told(Meters(), "127.0.0.1", 0) as port:
        with socket.create_connection(("127.0.0.1", port), timeout=30) as peer:
            peer.sendall(b"GET /metrics HTTP/1.1\r\nX")
            text = httpx.get(f"http://127.0.0.1:{port}/metrics", trust_env=False, timeout=30).text
        assert "calve_build_info" in text
