"""Values of the rooms below that a front builds or reads, so that it need not know those rooms."""

from calve.app.exports import ExportSurvey
from calve.archive.manifest import Manifest
from calve.backup.deletion import Deleted, Keep
from calve.backup.verification import Verified
from calve.clickhouse.parts.partitions import Selection
from calve.export.request import ExportRequest
from calve.iceberg.health.report import Health
from calve.optimize.request import OptimizeRequest

__all__ = [
    "Deleted",
    "ExportRequest",
    "ExportSurvey",
    "Health",
    "Keep",
    "Manifest",
    "OptimizeRequest",
    "Selection",
    "Verified",
]
