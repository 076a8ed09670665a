"""Disks of ClickHouse in a real S3 server: `far`, a cache over it, and a policy whose cold volume it is."""

from pathlib import Path
from xml.sax.saxutils import escape

from support.s3 import S3Server

BUCKET = "s3://disks"
POLICIES = ("far", "cached")
_TIERED = "<tiered><volumes><hot><disk>default</disk></hot><cold><disk>far</disk></cold></volumes></tiered>"


def server_settings(folder: Path, s3: S3Server) -> dict[str, str]:
    """Of an engine with these disks. What removes objects in the background waits for others of its pool."""
    return {"config-file": str(configured(folder, s3, "server")), "background_schedule_pool_size": "16"}


def configured(folder: Path, s3: S3Server, prefix: str) -> Path:
    keys = s3.keys
    far = (
        f"<type>s3</type><endpoint>{s3.endpoint}/disks/{prefix}/</endpoint>"
        f"<access_key_id>{escape(keys.access_key_id)}</access_key_id>"
        f"<secret_access_key>{escape(keys.secret_access_key)}</secret_access_key>"
    )
    cached = "<type>cache</type><disk>far</disk><path>cached/</path><max_size>100Mi</max_size>"
    policies = "".join(f"<{one}><volumes><all><disk>{one}</disk></all></volumes></{one}>" for one in POLICIES)
    file = folder / "disks.xml"
    file.write_text(
        f"<clickhouse><storage_configuration><disks><far>{far}</far><cached>{cached}</cached></disks>"
        f"<policies>{policies}{_TIERED}</policies></storage_configuration></clickhouse>"
    )
    return file
