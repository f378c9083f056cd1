"""Object stores on this machine: S3 and Glue by moto, and, where they are installed, Azurite and fake-gcs-server."""

from __future__ import annotations

import json
import re
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from socket import socket
from subprocess import DEVNULL, PIPE, STDOUT, Popen
from threading import Thread
from urllib.request import Request, urlopen

import boto3
import pytest
from msgspec import Struct

BUCKET = "lake"
_ACCOUNT = "devstoreaccount1"
_KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
"""The account of every Azurite, and its key."""


class Store(Struct, frozen=True):
    """A store: the URL of an empty bucket, and the options that lead each library there."""

    bucket: str
    options: dict[str, dict[str, str]]
    endpoint: str


@contextmanager
def _server(command: list[str], found: str) -> Iterator[str]:
    """A process while the block lasts, and what it says first that matches `found`.

    It is a process of its own also for Python's servers: `deltalake` keeps the lock of the interpreter while it waits.
    """
    with Popen(command, stdin=DEVNULL, stdout=PIPE, stderr=STDOUT, text=True) as server:
        try:
            assert server.stdout is not None
            said = next(match[1] for line in server.stdout if (match := re.search(found, line)))
            # What the server says later must not fill the pipe.
            Thread(target=server.stdout.read, daemon=True).start()
            yield said
        finally:
            server.terminate()


@contextmanager
def s3() -> Iterator[Store]:
    """A store that speaks S3; the same server speaks Glue."""
    with _server(
        [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", "0"], r"(http://127\.0\.0\.1:\d+)"
    ) as url:
        keys = {"aws_access_key_id": "test", "aws_secret_access_key": "nothing", "region_name": "us-east-1"}
        boto3.client("s3", endpoint_url=url, **keys).create_bucket(Bucket=BUCKET)
        direct = {"aws_endpoint_url": url, "aws_region": "us-east-1", "aws_allow_http": "true"}
        direct |= {"aws_access_key_id": "test", "aws_secret_access_key": "nothing"}
        options = {
            "delta": direct,
            "iceberg": {
                "s3.endpoint": url,
                "s3.access-key-id": "test",
                "s3.secret-access-key": "nothing",
                "s3.region": "us-east-1",
            },
            "parquet": {"endpoint_url": url, "key": "test", "secret": "nothing"},
        }
        yield Store(f"s3://{BUCKET}", options, url)


@contextmanager
def azure(where: Path) -> Iterator[Store]:
    """A store that speaks the protocol of Azure's blobs."""
    program = _installed("azurite-blob", "adlfs")
    command = [
        program,
        "--blobPort",
        "0",
        "--location",
        str(where),
        "--disableTelemetry",
        "--skipApiVersionCheck",
        "--silent",
    ]
    with _server(command, r"listens on (http://127\.0\.0\.1:\d+)") as url:
        endpoint = f"{url}/{_ACCOUNT}"
        connection = f"DefaultEndpointsProtocol=http;AccountName={_ACCOUNT};AccountKey={_KEY};BlobEndpoint={endpoint};"
        import_module("azure.storage.blob").BlobServiceClient.from_connection_string(connection).create_container(
            BUCKET
        )
        # The emulator does not list from a name on, and object_store must know.
        direct = {"azure_storage_use_emulator": "true", "azure_allow_http": "true"}
        options = {
            "delta": direct,
            "iceberg": {"adls.connection-string": connection, "adls.account-name": _ACCOUNT},
            "parquet": {"connection_string": connection, "account_name": _ACCOUNT},
        }
        with pytest.MonkeyPatch.context() as patched:
            patched.setenv("AZURITE_BLOB_STORAGE_URL", url)
            yield Store(f"abfss://{BUCKET}@{_ACCOUNT}.dfs.core.windows.net", options, url)


@contextmanager
def google(where: Path) -> Iterator[Store]:
    """A store that speaks the protocol of Google Cloud Storage; it refuses the requests of `deltalake`."""
    with pytest.MonkeyPatch.context() as patched, socket() as free:
        # gcsfs would ask Google itself, by TLS, of which kind the bucket is.
        patched.setenv("GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT", "false")
        program = _installed("fake-gcs-server", "gcsfs")
        # The URL of a server with a port from the system would be that with port 0.
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
        free.close()
        url = f"http://127.0.0.1:{port}"
        command = [program, "-scheme", "http", "-host", "127.0.0.1", "-port", str(port), "-external-url", url]
        with _server([*command, "-backend", "memory"], r"server started at (http://127\.0\.0\.1:\d+)"):
            bucket = json.dumps({"name": BUCKET}).encode()
            urlopen(Request(f"{url}/storage/v1/b?project=p", bucket, {"Content-Type": "application/json"})).close()
            token = {"gcs.oauth2.token": "anon", "gcs.oauth2.token-expires-at": str(2**42)}
            options = {
                "iceberg": {"gcs.service.host": url, **token},
                "parquet": {"endpoint_url": url, "token": "anon"},
            }
            yield Store(f"gs://{BUCKET}", options, url)


def _installed(program: str, package: str) -> str:
    found = shutil.which(program)
    if found is None:
        pytest.skip(f"there is no program {program}")
    pytest.importorskip(package)
    return found
