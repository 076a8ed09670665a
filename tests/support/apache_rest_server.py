"""Apache's REST catalog fixture, bound to loopback: what its own `main` does, but for the address.

    python -m support.apache_rest_server JAR PORT JDBC_URI WAREHOUSE FILES_JSON

Its `main` listens on every interface and offers no choice, so its servlet is put together here,
through Py4J, which PySpark brings along. The JVM ends with this program.
"""

import json
import sys
import time
from pathlib import Path
from typing import Any

import pyspark
from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway

from calve.spark.java import java_home


def main(jar: str, port: str, jdbc_uri: str, warehouse: str, files: str) -> None:
    """Serve until killed. `files` holds the properties of its file access: no key on a command line."""
    serve(_jvm(jar), int(port), jdbc_uri, warehouse, json.loads(Path(files).read_text(encoding="utf-8")))
    while True:
        time.sleep(60)


def serve(jvm: Any, port: int, jdbc_uri: str, warehouse: str, files: dict[str, str]) -> Any:
    """The running Jetty server."""
    properties = jvm.java.util.HashMap()
    for key, value in {
        "catalog-impl": "org.apache.iceberg.jdbc.JdbcCatalog",
        "uri": jdbc_uri,
        "warehouse": warehouse,
        "io-impl": "org.apache.iceberg.hadoop.HadoopFileIO",
        "jdbc.schema-version": "V1",
        # One writer at a time, as SQLite has it; the others wait instead of failing.
        "clients": "1",
        **files,
    }.items():
        properties.put(key, value)
    conf = jvm.org.apache.hadoop.conf.Configuration()
    catalog = jvm.org.apache.iceberg.CatalogUtil.buildIcebergCatalog("rest_backend", properties, conf)
    servlet = jvm.org.apache.iceberg.rest.RESTCatalogServlet(
        jvm.org.apache.iceberg.rest.RESTCatalogAdapter(catalog)
    )
    jetty = jvm.org.eclipse.jetty
    context = jetty.servlet.ServletContextHandler(0)
    context.addServlet(jetty.servlet.ServletHolder(servlet), "/*")
    server = jetty.server.Server(jvm.java.net.InetSocketAddress("127.0.0.1", port))
    server.setHandler(context)
    server.start()
    return server


def _jvm(jar: str) -> Any:
    py4j_jar = next((Path(pyspark.__file__).parent / "jars").glob("py4j-*.jar"))
    port = launch_gateway(
        jarpath=str(py4j_jar),
        classpath=jar,
        javaopts=["-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"],
        java_path=str(java_home() / "bin" / "java"),
        die_on_exit=True,
        redirect_stdout=sys.stdout,
        redirect_stderr=sys.stderr,
    )
    return JavaGateway(gateway_parameters=GatewayParameters(port=port)).jvm


if __name__ == "__main__":
    main(*sys.argv[1:])
