"""What an executor is given for one attempt at one task: JSON, and all that it needs.

It holds the keys of storage and source, so it is shipped and never stored or printed (P22).

How data files are written is part of it: the engine's settings, and what a table's properties ask of them. The
engine's own defaults are silently wrong for several readers (W1 to W5). A property that cannot be honoured is
an error, never ignored in silence.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self

from calve.clickhouse.reader import Read, Reader
from calve.destination import names
from calve.destination.plan import ColumnPlan, DestinationPlan, ExportPlan, PartPlan, Relation, Slice
from calve.model.errors import RefusedError
from calve.model.limits import Limits
from calve.model.record import Record


@dataclass(frozen=True, kw_only=True)
class TaskPayload(Record):
    process_id: str
    task: int
    attempt: int
    relation: Relation
    reader: Reader
    parts: tuple[PartPlan, ...]  # those that the slices name, and no others
    slices: tuple[Slice, ...]  # by place in `parts`
    columns: tuple[ColumnPlan, ...]
    destination: DestinationPlan
    memory_mb: int = 1000
    file_mb: int = 128
    open_files: int = 32
    settings: Mapping[str, str] = field(default_factory=dict)
    storage: Mapping[str, str] = field(default_factory=dict, repr=False)
    lending: Mapping[str, Any] = field(default_factory=dict, repr=False)  # to ask for new keys of `storage`
    connect_seconds: float = 5.0
    call_seconds: float = 15.0
    stall_seconds: float = Limits.stall_seconds
    pace: str = ""  # of uploads

    @classmethod
    def of(
        cls,
        plan: ExportPlan,
        *,
        task: int,
        attempt: int,
        reader: Reader,
        storage: Mapping[str, str],
        lending: Mapping[str, Any] | None = None,
        connect_seconds: float = 5.0,
        call_seconds: float = 15.0,
        stall_seconds: float = Limits.stall_seconds,
        pace: str = "",
    ) -> Self:
        """What task number `task` (from 0, its place in the plan) needs of the plan."""
        slices = plan.tasks[task]
        places = sorted({piece.part for piece in slices})
        moved = {place: new for new, place in enumerate(places)}
        return cls(
            process_id=plan.process_id,
            task=task,
            attempt=attempt,
            relation=plan.relation,
            reader=reader,
            parts=tuple(plan.parts[place] for place in places),
            slices=tuple(Slice(part=moved[piece.part], start=piece.start, end=piece.end) for piece in slices),
            columns=plan.columns,
            destination=plan.destination,
            memory_mb=plan.memory_mb,
            file_mb=plan.file_mb,
            open_files=plan.open_files,
            settings=plan.settings,
            storage=storage,
            lending=lending or {},
            connect_seconds=connect_seconds,
            call_seconds=call_seconds,
            stall_seconds=stall_seconds,
            pace=pace,
        )

    @property
    def read(self) -> Read:
        """What its reader is asked for."""
        return Read(
            relation=self.relation,
            parts=self.parts,
            slices=self.slices,
            access=self.reader.access,
            settings=self.settings,
            memory_mb=self.memory_mb,
            connect_seconds=self.connect_seconds,
            call_seconds=self.call_seconds,
        )

    @property
    def receipt_uri(self) -> str:
        return names.receipt_uri(self.destination.receipts_location, self.process_id, self.task, self.attempt)


CODEC = "write.parquet.compression-codec"
_LEVEL = "write.parquet.compression-level"
_FILE_BYTES = "write.target-file-size-bytes"
_GROUP = "write.parquet.row-group-size-bytes"
_PAGE = "write.parquet.page-size-bytes"
_DICTIONARY = "write.parquet.dict-size-bytes"
_MEGABYTE = 1_000_000
_GROUP_BYTES = 128 << 20
_LEAST_GROUP_BYTES = 1 << 20
_BLOCK_BYTES = 8_000_000
_BLOCK_COLUMN_BYTES = (
    32_000  # of each column in a block: of a wide table, few rows would make all work piecemeal
)
_MOST_BLOCK_BYTES = 64_000_000
_MEMORY_A_GROUP = 7  # a writer's peak, in units of its row groups: measured
_ZSTD_LEVEL = "3"
CODECS = {
    "zstd": "zstd",
    "snappy": "snappy",
    "gzip": "gzip",
    "lz4": "lz4",
    "brotli": "brotli",
    "uncompressed": "none",
}


def file_mb(properties: Mapping[str, str], default: int) -> int:
    """How large a data file should be: the table's own wish, or the configuration's."""
    wished = _number(properties, _FILE_BYTES)
    return max(1, wished // _MEGABYTE) if wished else default


def check_properties(properties: Mapping[str, str]) -> None:
    """RefusedError for a property that files cannot be written by."""
    _codec(properties)
    for name in (_LEVEL, _FILE_BYTES, _GROUP, _PAGE, _DICTIONARY):
        _number(properties, name)


def write_settings(payload: TaskPayload, writers: int) -> dict[str, str]:
    properties = payload.destination.properties
    memory = payload.memory_mb * _MEGABYTE
    wished = _number(properties, _GROUP) or _GROUP_BYTES
    group_bytes = max(_LEAST_GROUP_BYTES, min(wished, memory // _MEMORY_A_GROUP // max(1, writers)))
    codec = _codec(properties)
    settings = {
        "max_threads": "1",  # more lose the order of rows
        "max_insert_threads": "1",
        "output_format_parquet_parallel_encoding": "0",
        "output_format_parquet_compression_method": codec,
        "output_format_parquet_write_bloom_filter": "0",  # Spark loses rows by them (W2)
        "output_format_parquet_row_group_size_bytes": str(group_bytes),
        "output_format_parquet_string_as_string": "1",
        "output_format_parquet_fixed_string_as_fixed_byte_array": "1",
        "output_format_parquet_date_as_uint16": "0",
        "output_format_parquet_datetime_as_uint32": "0",
        "preferred_block_size_bytes": str(_block_bytes(len(payload.columns), memory)),
        # Blocks go to the writer as they are read: made into one of 256 MB first, they only take memory.
        "min_insert_block_size_rows": "8192",
        "min_insert_block_size_bytes": str(_BLOCK_BYTES // 8),
        "compile_expressions": "0",  # compiling a wide table's costs more than its rows, and saves nothing
        "compile_aggregate_expressions": "0",
        "optimize_use_projections": "0",
        "engine_file_truncate_on_insert": "1",
        "max_memory_usage": str(memory),
        "prefer_column_name_to_alias": "1",  # a column may be called as its own cast
        "allow_suspicious_low_cardinality_types": "1",
        "max_query_size": str(64 << 20),
        "max_ast_elements": "1000000",
        "max_expanded_ast_elements": "5000000",
    }
    level = properties.get(_LEVEL) or (_ZSTD_LEVEL if codec == "zstd" else "")
    asked = {
        "output_format_compression_level": level,
        "output_format_parquet_data_page_size": properties.get(_PAGE, ""),
        "output_format_parquet_max_dictionary_size": properties.get(_DICTIONARY, ""),
        # A row group is made of whole blocks: small ones need blocks of a granule.
        "max_block_size": "8192" if wished < _BLOCK_BYTES else "",
    }
    return {**payload.settings, **settings, **{name: value for name, value in asked.items() if value}}


def _block_bytes(columns: int, memory: int) -> int:
    """The engine's own 1 MB costs a tenth more, and so do 8 MB of 1,000 columns."""
    wide = min(columns * _BLOCK_COLUMN_BYTES, _MOST_BLOCK_BYTES, memory // 30)
    return max(_BLOCK_BYTES, wide)


def _codec(properties: Mapping[str, str]) -> str:
    codec = properties.get(CODEC, "zstd").lower()
    if codec not in CODECS:
        raise RefusedError(
            f"the table's property {CODEC} is {codec!r}, which cannot be written",
            code="table_property",
            hint=f"set it to one of {', '.join(CODECS)}, or give --codec",
        )
    return CODECS[codec]


def _number(properties: Mapping[str, str], name: str) -> int:
    """0 where it is not set."""
    text = properties.get(name, "")
    if text and not (text.isdigit() and int(text)):
        raise RefusedError(
            f"the table's property {name} is {text!r}, not a positive number",
            code="table_property",
            hint=f"set {name} to a number, or remove it",
        )
    return int(text or 0)
