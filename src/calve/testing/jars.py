"""Jars that only tests need, pinned like the product's own and fetched by the same code."""

from calve.runner.jars import Jar

# Apache's REST fixture: despite its name the main jar is the runnable server with all it needs.
ICEBERG_REST = Jar(
    group="org.apache.iceberg",
    artifact="iceberg-open-api",
    version="1.10.1",
    sha256="09e6aef58984eaa58bf1e1bc5193ad023e929c6bfd38c82db7b83ffe825af724",
)
