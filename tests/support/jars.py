"""Jars that only tests need, pinned like the product's own and fetched by the same code."""

import sys

from calve.model.errors import CalveError
from calve.spark.java import ICEBERG_SPARK, POSTGRES_JDBC, SQLITE_JDBC, Jar, cached, resolve

# Apache's REST fixture: despite its name the main jar is the runnable server with all it needs.
ICEBERG_REST = Jar(
    group="org.apache.iceberg",
    artifact="iceberg-open-api",
    version="1.10.1",
    sha256="09e6aef58984eaa58bf1e1bc5193ad023e929c6bfd38c82db7b83ffe825af724",
)

FOR_TESTS = (ICEBERG_SPARK, SQLITE_JDBC, POSTGRES_JDBC, ICEBERG_REST)


def main() -> int:
    """Fetch what is not cached yet; what failed is said in words."""
    for jar in FOR_TESTS:
        if cached(jar) is None:
            sys.stderr.write(f"fetching {jar.file_name}\n")
            try:
                resolve(jar)
            except CalveError as error:
                sys.stderr.write(f"error: {error.message}\nhint: {error.hint}\n")
                return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
