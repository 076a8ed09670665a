"""The peak of memory of a task's process for parts of 0.25, 1 and 4 GB (uncompressed), each cut for one core. It
must not grow with the part."""

from kit.report import Report, peak_mb, tree
from kit.world import fill, folder, warm
from support.place import Place

ROW_BYTES = 70  # of the mixed table, uncompressed


def main() -> None:
    report = Report("memory", __doc__)
    peaks = {}
    for gigabytes in (0.05, 0.2) if report.quick else (0.25, 1, 4):
        with folder() as home:
            rows = int(gigabytes * 1e9 / ROW_BYTES)
            fill(Place(home), rows, parts=1)
            with warm(home, cores=1) as worker, report.timed(f"{gigabytes} GB") as run:
                [process] = worker.export()
                workers = [pid for pid in tree() if _is_worker(pid)]
                peaks[gigabytes] = max(map(peak_mb, workers))
                run.detail |= {"rows": rows, "tasks": process.tasks.total, "peak_mb": round(peaks[gigabytes])}

    report.ratio("largest over smallest peak", max(peaks.values()) / min(peaks.values()), 1.2, at_least=False)
    report.ratio("peak, MB", max(peaks.values()), 1000, at_least=False)
    report.finish()


def _is_worker(pid: int) -> bool:
    from pathlib import Path

    command = Path(f"/proc/{pid}/cmdline").read_bytes()
    return b"calve.spark.executor" in command


if __name__ == "__main__":
    main()
