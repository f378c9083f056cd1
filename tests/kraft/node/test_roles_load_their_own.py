"""What a served controller loads until it leads: nothing of a broker, counted in its process."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Final

import kraft
from kraft.config import Config

MOST_MODULES: Final = 335
"""So many of our own; 445 while a controller loaded the code of brokers. Those of others depend on the Python."""
OF_BROKERS: Final = ("kraft.broker", "kraft.coordinators", "kraft.partitions", "kraft.node.broker_node")
OURS: Final = ("kraft", "metadata_log", "transport")
_LOADED: Final = re.compile(r"^import time: .*\| +(\S+)$")
CONFIG: Final = """\
process.roles=controller
node.id=1
listeners=CONTROLLER://127.0.0.1:0
controller.listener.names=CONTROLLER
controller.quorum.bootstrap.servers=127.0.0.1:9
controller.quorum.election.timeout.ms=100
controller.quorum.fetch.timeout.ms=200
log.dirs={directory}
"""


def test_a_controller_loads_no_code_of_brokers(tmp_path: Path) -> None:
    config = tmp_path / "c1.properties"
    config.write_text(CONFIG.format(directory=tmp_path / "c1"))
    kraft.format(Config.load(str(config)), "JtyRhhQnSJ-_kCqF1NaB4g", standalone=True)
    command = [sys.executable, "-X", "importtime", "-m", "kraft", "serve", "--until-stdin-closes", str(config)]
    loaded, told = list[str](), list[str]()
    with subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as node:
        assert node.stdin is not None
        assert node.stderr is not None
        for line in node.stderr:
            if (found := _LOADED.match(line.rstrip())) is not None:
                loaded.append(found[1])
                continue
            told.append(line)
            if "to=Leader" in line:
                break
        node.stdin.close()
        told += [line for line in node.stderr if not line.startswith("import time:")]
    assert node.returncode == 0, told
    assert any("to=Leader" in line for line in told), told
    # Python names a module twice that another one asks for while it is loaded.
    ours = {name for name in loaded if name.partition(".")[0] in OURS}
    assert [name for name in ours if name.startswith(OF_BROKERS)] == []
    assert len(ours) <= MOST_MODULES
