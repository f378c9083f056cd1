"""A cluster of ducktape whose nodes are namespaces of this machine, as lab.sh makes them.

It stands in for ducktape's own clusters over SSH: commands by nsenter, files by /proc/PID/root. It runs in ducktape's
environment, as `ducktape --cluster lab_cluster.LabCluster`.
"""

import contextlib
import os
import posixpath
import select
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from ducktape.cluster.cluster import Cluster
from ducktape.cluster.cluster_node import ClusterNode
from ducktape.cluster.cluster_spec import ClusterSpec
from ducktape.cluster.linux_remoteaccount import LinuxRemoteAccount
from ducktape.cluster.node_container import NodeContainer
from ducktape.cluster.remoteaccount import RemoteAccountSSHConfig

LAB = Path(os.environ["LAB"])
HOME = str(Path.home())
_AS_A_USER = ("setpriv", "--bounding-set=-dac_override", "--inh-caps=-dac_override")
"""Programs of a node obey the permissions of files, as elsewhere they do not run as root: tests take a disk's away."""


class _Channel:
    """What ducktape asks of a channel of paramiko."""

    def __init__(self, pid: str) -> None:
        self._pid = pid
        self._timeout: float | None = None
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as the channel
        self._command = ""
        self._is_combined = False
        self._process: subprocess.Popen[bytes] | None = None

    def settimeout(self, timeout: float | None) -> None:
        self._timeout = timeout

    def gettimeout(self) -> float | None:
        return self._timeout

    def exec_command(self, cmd: str) -> None:
        """Note the command. It begins with the first stream that is asked for: ducktape says later what is combined."""
        self._command = cmd

    def set_combine_stderr(self, combine: bool) -> None:
        self._is_combined = combine

    def _begun(self) -> "subprocess.Popen[bytes]":
        if self._process is None:
            shell = f"export PATH=/opt/lab/bin:$PATH; cd; {self._command}"
            self._process = subprocess.Popen(
                ["nsenter", "-t", self._pid, "-n", "-m", "-u", "-p", *_AS_A_USER, "bash", "-c", shell],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT if self._is_combined else self._errors,
                start_new_session=True,
            )
        return self._process

    def makefile(self, mode: str, _size: int = -1) -> "_File":
        process = self._begun()
        stream = process.stdin if "w" in mode else process.stdout
        assert stream is not None
        return _File(self, stream)

    def makefile_stderr(self, _mode: str, _size: int = -1) -> "_Errors":
        return _Errors(self._errors)

    def recv_exit_status(self) -> int:
        return self._begun().wait()


class _File:
    def __init__(self, channel: _Channel, file: IO[bytes]) -> None:
        self.channel = channel
        self._file = file
        self._rest = b""
        self._is_ended = False

    def _fill(self) -> bool:
        """Read some more; False once every writer has closed the pipe, as with sshd: `| tee F &` holds it open."""
        ready, _, _ = select.select([self._file], [], [], self.channel.gettimeout())
        if not ready:
            raise TimeoutError
        data = os.read(self._file.fileno(), 65536)
        self._rest += data
        return bool(data)

    def read(self) -> str:
        while self._fill():
            pass
        data, self._rest = self._rest, b""
        return data.decode(errors="replace")

    def readline(self) -> str:
        while b"\n" not in self._rest and not self._is_ended:
            self._is_ended = not self._fill()
        line, end, self._rest = self._rest.partition(b"\n")
        return (line + end).decode(errors="replace")

    def __iter__(self) -> Iterator[str]:
        return iter(self.readline, "")

    def write(self, data: bytes | str) -> None:
        self._file.write(data if isinstance(data, bytes) else data.encode())
        self._file.flush()

    def flush(self) -> None:
        self._file.flush()

    def close(self) -> None:
        with contextlib.suppress(OSError):  # the command has ended
            self._file.close()


class _Errors:
    """Standard error apart: a file, so that a command never waits for its reader."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file

    def read(self) -> bytes:
        self._file.seek(0)
        return self._file.read()

    def close(self) -> None:
        self._file.close()


class _Ssh:
    def __init__(self, pid: str) -> None:
        self._pid = pid

    def exec_command(self, cmd: str) -> tuple[_File, _File, _Errors]:
        channel = _Channel(self._pid)
        channel.exec_command(cmd)
        return channel.makefile("w"), channel.makefile("r"), channel.makefile_stderr("r")

    def get_transport(self) -> "_Ssh":
        return self

    def is_active(self) -> bool:
        return True

    def send_ignore(self) -> None:
        pass

    def open_session(self, timeout: float | None = None) -> _Channel:
        return _Channel(self._pid)

    def close(self) -> None:
        pass


class _Sftp:
    def __init__(self, pid: str) -> None:
        self._root = f"/proc/{pid}/root"

    def _at(self, path: str) -> str:
        return self._root + posixpath.join(HOME, path)

    def get(self, src: str, dest: str) -> None:
        shutil.copyfile(self._at(src), dest)

    def put(self, src: str, dest: str) -> None:
        shutil.copyfile(src, self._at(dest))

    def listdir(self, path: str) -> list[str]:
        return os.listdir(self._at(path))

    def stat(self, path: str) -> os.stat_result:
        return os.stat(self._at(path))

    def lstat(self, path: str) -> os.stat_result:
        return os.lstat(self._at(path))

    def open(self, path: str, mode: str = "r") -> IO[Any]:
        return open(self._at(path), mode)

    def mkdir(self, path: str, mode: int = 0o755) -> None:
        os.mkdir(self._at(path), mode)

    def remove(self, path: str) -> None:
        os.remove(self._at(path))

    def close(self) -> None:
        pass


class LabAccount(LinuxRemoteAccount):  # type: ignore[misc]
    """A node as ducktape sees it."""

    def __init__(self, name: str, pid: str, ip: str) -> None:
        super().__init__(RemoteAccountSSHConfig(name, hostname=name, port=22), externally_routable_ip=ip)
        self.pid = pid

    @property
    def ssh_client(self) -> _Ssh:
        return _Ssh(self.pid)

    @property
    def sftp_client(self) -> _Sftp:
        return _Sftp(self.pid)

    def close(self) -> None:
        pass


class LabCluster(Cluster):  # type: ignore[misc]
    """The nodes that lab.sh has made."""

    def __init__(self, *_args: object, **_kwargs: object) -> None:
        super().__init__()
        self._available_nodes = NodeContainer()
        self._in_use_nodes = NodeContainer()
        for folder in sorted((LAB / "nodes").iterdir(), key=lambda each: int(each.name.removeprefix("worker"))):
            address = f"10.9.0.{folder.name.removeprefix('worker')}"
            account = LabAccount(folder.name, (folder / "pid").read_text().strip(), address)
            self._available_nodes.add_node(ClusterNode(account))

    def do_alloc(self, cluster_spec: ClusterSpec) -> list[ClusterNode]:
        good, _ = self._available_nodes.remove_spec(cluster_spec)
        self._in_use_nodes.add_nodes(good)
        return good

    def free_single(self, node: ClusterNode) -> None:
        self._in_use_nodes.remove_node(node)
        self._available_nodes.add_node(node)

    def available(self) -> ClusterSpec:
        return ClusterSpec.from_nodes(self._available_nodes)

    def used(self) -> ClusterSpec:
        return ClusterSpec.from_nodes(self._in_use_nodes)
