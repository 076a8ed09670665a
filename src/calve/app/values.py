"""Values of the rooms below that a front builds or reads, so that it need not know those rooms."""

from calve.app.exports import ExportSurvey
from calve.archive.manifest import Manifest
from calve.backup.deletion import Deleted, Keep
from calve.backup.request import BackupOptions
from calve.backup.verification import Verified
from calve.clickhouse.parts.partitions import Selection
from calve.export.request import ExportOptions
from calve.iceberg.health.report import Health
from calve.optimize.request import OptimizeOptions, SortBy, parse_sort
from calve.restore.submit import RestoreOptions

__all__ = [
    "BackupOptions",
    "Deleted",
    "ExportOptions",
    "ExportSurvey",
    "Health",
    "Keep",
    "Manifest",
    "OptimizeOptions",
    "RestoreOptions",
    "Selection",
    "SortBy",
    "Verified",
    "parse_sort",
]
