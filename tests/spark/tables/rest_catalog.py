"""The REST catalog of Apache Iceberg: the server of Iceberg's own tests, in a JVM on this machine."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyspark
from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway

from support.kafka_jars import Module, cache_directory, ensure

VERSION = "1.10.0"
MODULES: list[Module] = [
    ("org.apache.iceberg", "iceberg-core:tests", VERSION),
    ("org.eclipse.jetty", "jetty-servlet", "11.0.26"),
    ("org.slf4j", "slf4j-simple", "2.0.17"),
]


@contextmanager
def rest_catalog(warehouse: str) -> Iterator[str]:
    """The URL of a catalog while the block lasts; its tables are below `warehouse`, a URL."""
    jars = ensure(cache_directory(VERSION, "iceberg"), MODULES)
    (of_py4j,) = (Path(pyspark.__file__).parent / "jars").glob("py4j*.jar")
    classes = ":".join(map(str, sorted(jars.rglob("*.jar"))))
    port = launch_gateway(jarpath=str(of_py4j), classpath=classes, die_on_exit=True, javaopts=["-Xmx256m"])
    gateway = JavaGateway(gateway_parameters=GatewayParameters(port=port, auto_convert=True))
    try:
        java = gateway.jvm
        catalog = java.org.apache.iceberg.inmemory.InMemoryCatalog()
        catalog.initialize("backend", {"warehouse": warehouse})
        adapter = java.org.apache.iceberg.rest.RESTCatalogAdapter(catalog)
        servlet = java.org.apache.iceberg.rest.RESTCatalogServlet(adapter)
        handler = java.org.eclipse.jetty.servlet.ServletContextHandler()
        handler.addServlet(java.org.eclipse.jetty.servlet.ServletHolder(servlet), "/*")
        server = java.org.eclipse.jetty.server.Server(java.java.net.InetSocketAddress("127.0.0.1", 0))
        server.setHandler(handler)
        server.start()
        yield f"http://127.0.0.1:{server.getURI().getPort()}"
    finally:
        gateway.shutdown()
