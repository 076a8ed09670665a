"""A Hive metastore over Derby in memory, bound to loopback: what its own `main` does, but for the address.

    python -m support.hive_metastore_server PORT FOLDER [JAR…]

Its `main` listens on every interface and offers no choice, so its Thrift server is put together here, through Py4J.
With JARs, those of another version go before PySpark's, whose own metastore is 2.3.10. The JVM ends with this program.
"""

import sys
from pathlib import Path
from typing import Any

import pyspark
from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway

from calve.spark.java import java_home

_HIVE_2 = ("hive-common", "hive-exec", "hive-metastore", "hive-serde", "hive-shims", "libthrift-", "spark-")
_SETTINGS = {
    "javax.jdo.option.ConnectionURL": "jdbc:derby:memory:metastore;create=true",
    "javax.jdo.option.ConnectionDriverName": "org.apache.derby.jdbc.EmbeddedDriver",
    "datanucleus.schema.autoCreateAll": "true",
    "hive.metastore.schema.verification": "false",
    "hive.txn.manager": "org.apache.hadoop.hive.ql.lockmgr.DbTxnManager",
    "hive.support.concurrency": "true",
    "datanucleus.connectionPoolingType": "HikariCP",  # the one that PySpark has
    "metastore.client.capability.check": "false",
    # What is named by default is of a whole Hive.
    "metastore.expression.proxy": "org.apache.hadoop.hive.metastore.DefaultPartitionExpressionProxy",
    "metastore.task.threads.always": "org.apache.hadoop.hive.metastore.events.EventCleanerTask",
}


def main(port: str, folder: str, *jars: str) -> None:
    """Serve until killed."""
    jvm = _jvm(folder, jars)
    metastore, thrift = jvm.org.apache.hadoop.hive.metastore, jvm.org.apache.thrift
    # Hive 3 has a metastore of its own, and settings for it.
    alone = any("standalone" in jar for jar in jars)
    conf = (
        metastore.conf.MetastoreConf.newMetastoreConf()
        if alone
        else jvm.org.apache.hadoop.hive.conf.HiveConf()
    )
    for key, value in (_SETTINGS | {"hive.metastore.warehouse.dir": f"{folder}/warehouse"}).items():
        conf.set(key, value)
    metastore.txn.TxnDbUtil.setConfValues(conf)
    # Its locks are in tables that nothing else makes.
    metastore.txn.TxnDbUtil.prepDb(conf)
    handler = getattr(metastore, "HiveMetaStore$HMSHandler")("calve", conf, False)
    processor = metastore.TSetIpAddressProcessor(metastore.RetryingHMSHandler.getProxy(conf, handler, False))
    socket = thrift.transport.TServerSocket(jvm.java.net.InetSocketAddress("127.0.0.1", int(port)))
    arguments = getattr(thrift.server, "TThreadPoolServer$Args")(socket)
    arguments.processor(processor)
    arguments.transportFactory(thrift.transport.TTransportFactory())
    arguments.protocolFactory(getattr(thrift.protocol, "TBinaryProtocol$Factory")())
    thrift.server.TThreadPoolServer(arguments).serve()


def _jvm(folder: str, jars: tuple[str, ...]) -> Any:
    spark = Path(pyspark.__file__).parent / "jars"
    theirs = [path for path in sorted(spark.glob("*.jar")) if not _replaced(path.name, jars)]
    port = launch_gateway(
        jarpath=str(next(spark.glob("py4j-*.jar"))),
        classpath=":".join([*jars, *map(str, theirs)]),
        javaopts=[
            "-Xmx512m",
            "-XX:+UseSerialGC",
            "-XX:TieredStopAtLevel=1",
            f"-Dderby.stream.error.file={folder}/derby.log",
        ],
        java_path=str(java_home() / "bin" / "java"),
        die_on_exit=True,
        redirect_stdout=sys.stdout,
        redirect_stderr=sys.stderr,
    )
    return JavaGateway(gateway_parameters=GatewayParameters(port=port)).jvm


def _replaced(name: str, jars: tuple[str, ...]) -> bool:
    return any("standalone" in jar for jar in jars) and name.startswith(_HIVE_2)


if __name__ == "__main__":
    main(*sys.argv[1:])
