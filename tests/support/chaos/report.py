"""What a run leaves for people: `chaos.json`, and `chaos.html`, a page of its own with the timeline as a picture."""

import json
import platform
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from html import escape
from pathlib import Path
from typing import Any

from calve import __version__
from calve.model.process import Process
from calve.model.states import ProcessState
from support.chaos.diary import Diary, Span

_WIDTH, _ROW, _LEFT = 1200, 15, 130
_STATE = {
    ProcessState.COMPLETED: "#2f855a",
    ProcessState.FAILED: "#c05621",
    ProcessState.CANCELLED: "#718096",
}
_STRIKE = {
    "kill": "#c53030", "terminate": "#dd6b20", "stop": "#d69e2e", "full disk": "#b83280", "clock": "#6b46c1",
    "restart": "#c53030", "refuse": "#e53e3e", "cut": "#e53e3e", "delay": "#ecc94b", "half_open": "#805ad5",
    "lost_answers": "#d53f8c", "ended": "#1a202c",
}  # fmt: skip
_QUIET = {"up": "#cbd5e0"}
_OTHER = "#4299e1"
KINDS = ("export", "backup", "restore", "optimize")


@dataclass(kw_only=True)
class Report:
    seed: int
    minutes: float
    command: str
    folder: Path
    nemeses_end: float  # seconds after the beginning
    settled: float
    problems: Sequence[str]
    processes: Sequence[Process]
    diary: Diary
    rows_compared: int = 0
    lost: int = 0
    doubled: int = 0
    core_seconds: float = 0.0
    logs: Mapping[str, str] = field(default_factory=dict)

    @property
    def ok(self) -> bool:
        return not self.problems

    def outcomes(self) -> dict[str, dict[str, int]]:
        found = {
            kind: Counter(str(one.state) for one in self.processes if one.kind == kind) for kind in KINDS
        }
        return {kind: dict(sorted(states.items())) for kind, states in found.items() if states}

    def document(self) -> dict[str, Any]:
        return {
            "ok": self.ok,
            "seed": self.seed,
            "minutes": self.minutes,
            "command": self.command,
            "calve": __version__,
            "python": platform.python_version(),
            "problems": list(self.problems),
            "remarks": self.diary.remarks,
            "processes": self.outcomes(),
            "counts": dict(sorted(self.diary.counts.items())),
            "rows_compared": self.rows_compared,
            "lost": self.lost,
            "doubled": self.doubled,
            "seconds": {"nemeses": round(self.nemeses_end, 1), "settled": round(self.settled, 1)},
            "core_seconds": round(self.core_seconds),
            "logs": dict(self.logs),
            "spans": [asdict(span) for span in self.diary.spans],
        }

    def write(self) -> Path:
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / "chaos.json").write_text(json.dumps(self.document(), indent=1), encoding="utf-8")
        (self.folder / "chaos.svg").write_text(timeline(self), encoding="utf-8")
        page = self.folder / "chaos.html"
        page.write_text(_page(self), encoding="utf-8")
        return page

    def told(self) -> str:
        """For a terminal."""
        counts = self.diary.counts
        lines = [
            f"seed {self.seed}, {self.minutes:g} minutes: {'everything held' if self.ok else 'FAILED'}",
            "struck: " + ", ".join(f"{counts[one]} {one}" for one in STRUCK if counts[one]),
            *(
                f"{kind}: " + ", ".join(f"{count} {state.lower()}" for state, count in states.items())
                for kind, states in self.outcomes().items()
            ),
            f"{self.rows_compared:,} rows compared by value, {self.lost} lost, {self.doubled} doubled",
            f"all had ended {self.settled - self.nemeses_end:.0f} s after the last strike;"
            f" {self.core_seconds:.0f} core-seconds",
            *self.diary.remarks,
            *(f"problem: {one}" for one in self.problems),
            *((f"log of {name}: {path}" for name, path in self.logs.items()) if not self.ok else ()),
            f"report: {self.folder / 'chaos.html'}",
            f"again: {self.command}",
        ]
        return "\n".join(lines)


STRUCK = (
    "kills",
    "terminations",
    "stops",
    "restarts of services",
    "connections cut",
    "half-open connections",
    "lost answers",
    "full disks",
    "clock jumps",
)


def _page(report: Report) -> str:
    rows = [
        ("seed", report.seed),
        ("again", report.command),
        ("rows compared by value", f"{report.rows_compared:,}"),
        ("lost, doubled", f"{report.lost}, {report.doubled}"),
        *(
            (kind, ", ".join(f"{n} {s}" for s, n in found.items()))
            for kind, found in report.outcomes().items()
        ),
        *sorted(report.diary.counts.items()),
        *(("remark", one) for one in report.diary.remarks),
        *(("PROBLEM", one) for one in report.problems),
    ]
    table = "".join(f"<tr><th>{escape(str(a))}</th><td>{escape(str(b))}</td></tr>" for a, b in rows)
    return (
        "<!doctype html><meta charset=utf-8><title>chaos</title><style>body{font:14px sans-serif;margin:2em}"
        "th{text-align:left;padding-right:2em;vertical-align:top}svg{max-width:100%}</style>"
        f"<h1>Chaos, seed {report.seed}: {'everything held' if report.ok else 'failed'}</h1>"
        f"{timeline(report)}<table>{table}</table>"
    )


def timeline(report: Report) -> str:
    """Programs and services with what was done to them, then each process from submission to its end."""
    spans = report.diary.spans
    lanes = list(dict.fromkeys(span.lane for span in sorted(spans, key=_importance)))
    processes = sorted(report.processes, key=lambda one: one.created_at)
    height = (len(lanes) + len(processes) + 4) * _ROW + 30
    scale = (_WIDTH - _LEFT - 10) / max(report.settled, 1.0)
    drawn = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" font-family="sans-serif"'
        f' font-size="10"><rect width="{_WIDTH}" height="{height}" fill="white"/>',
        *_shades(spans, scale, height),
        *_axis(report, scale, height),
    ]
    for number, lane in enumerate(lanes):
        top = number * _ROW + 10
        drawn.append(f'<text x="4" y="{top + 10}">{escape(lane)}</text>')
        for span in (one for one in spans if one.lane == lane):
            colour = _STRIKE.get(span.kind) or _QUIET.get(span.kind, _OTHER)
            about = f"{span.kind} {span.text}"
            drawn.append(_bar(span.begin, span.end or span.begin, top, scale, colour, about))
    for number, process in enumerate(processes):
        top = (len(lanes) + number + 1) * _ROW + 10
        begin = report.diary.at(process.created_at.timestamp())
        end = report.diary.at(process.finished_at.timestamp()) if process.finished_at else report.settled
        colour = _STATE.get(process.state, "#000")
        drawn.append(f'<text x="4" y="{top + 10}">{process.kind} {process.id[:6]}</text>')
        about = f"{process.kind} {process.id} {process.source} {process.partitions} {process.state}"
        drawn.append(_bar(begin, end, top, scale, colour, about))
    return "".join([*drawn, _legend(height), "</svg>"])


def _importance(span: Span) -> tuple[int, str]:
    order = ("worker", "server", "s3", "catalog", "clickhouse", "postgres", "client", "foreign", "ClickHouse")
    return next(n for n, one in enumerate((*order, "")) if span.lane.startswith(one)), span.lane


def _bar(begin: float, end: float, top: float, scale: float, colour: str, about: str) -> str:
    begin = max(begin, 0.0)  # what began before the first strike
    return (
        f'<rect x="{_LEFT + begin * scale:.1f}" y="{top}" width="{max((end - begin) * scale, 2):.1f}"'
        f' height="{_ROW - 4}" fill="{colour}"><title>{escape(about)}</title></rect>'
    )


def _shades(spans: Iterable[Span], scale: float, height: int) -> list[str]:
    """Strikes through all lines: what else went on meanwhile is seen."""
    return [
        f'<rect x="{_LEFT + span.begin * scale:.1f}" y="0" height="{height}" fill="{_STRIKE[span.kind]}"'
        f' width="{max(((span.end or span.begin) - span.begin) * scale, 1):.1f}" opacity="0.07"/>'
        for span in spans
        if span.kind in _STRIKE
    ]


def _axis(report: Report, scale: float, height: int) -> list[str]:
    step = next(one for one in (10, 30, 60, 300, 900, 3600) if report.settled / one <= 16 or one == 3600)
    marks = [
        f'<text x="{_LEFT + at * scale:.1f}" y="9" fill="#718096">{at // 60}:{at % 60:02}</text>'
        for at in range(0, int(report.settled), step)
    ]
    end = _LEFT + report.nemeses_end * scale
    return [
        *marks,
        f'<line x1="{end:.1f}" x2="{end:.1f}" y1="0" y2="{height}" stroke="#2d3748" stroke-dasharray="4"/>',
        f'<text x="{end + 3:.1f}" y="{height - 30}">no more strikes</text>',
    ]


def _legend(height: int) -> str:
    named = {str(state): colour for state, colour in _STATE.items()} | _STRIKE
    drawn, left = [], _LEFT
    for name, colour in named.items():
        drawn.append(f'<rect x="{left}" y="{height - 20}" width="10" height="10" fill="{colour}"/>')
        drawn.append(
            f'<text x="{left + 13}" y="{height - 11}">{escape(name.replace("_", " ").lower())}</text>'
        )
        left += 24 + 6 * len(name)
    return "".join(drawn)
