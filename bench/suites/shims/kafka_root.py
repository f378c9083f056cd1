"""Stands for the programs in `bin` of a Kafka that kafka-python's fixtures start: the first argument names one.

`SUITE_MAKE` says whether `kafka.Kafka` and the formatting are ours or Kafka's. Ours prints the two lines of Kafka's log
for which the fixtures wait, once what they say is true.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Final, NoReturn

sys.path.append(str(Path(__file__).parents[3] / "tests"))

from support.interop.our_nodes import KRAFT
from support.interop.real_kafka import KafkaInstallation

TOOLS: Final = {"kafka-topics.sh": "org.apache.kafka.tools.TopicCommand", "kafka-storage.sh": "kafka.tools.StorageTool"}


def format_directories(properties: Path, args: Sequence[str]) -> int:
    """Format by a file without logins and TLS, which the fixtures add later: ours refuses what a node refuses."""
    plain = properties.with_suffix(".plain")
    text = re.sub(r"^inter\.broker\.listener\.name=.*\n", "", properties.read_text(), flags=re.MULTILINE)
    plain.write_text(re.sub(r"\b(SASL_PLAINTEXT|SASL_SSL|SSL)://", "PLAINTEXT://", text))
    command = [str(plain) if word == str(properties) else word for word in args]
    return subprocess.run([*KRAFT, *command], check=False).returncode


def login(properties: Path) -> None:
    """Move the logins of a server from the file that a JVM is told of to the properties, where ours looks for them."""
    found = re.search(r"-Djava.security.auth.login.config=(\S+)", os.environ.get("KAFKA_OPTS", ""))
    text = properties.read_text()
    mechanism = re.search(r"^sasl.enabled.mechanisms=(.+)$", text, re.MULTILINE)
    if found is None or mechanism is None:
        return
    [body] = re.findall(r"KafkaServer\s*\{(.*?)\}", Path(found[1]).read_text(), re.DOTALL)
    listener = "sasl_ssl" if "listeners=SASL_SSL" in text else "sasl_plaintext"
    line = " ".join(body.split())
    properties.write_text(f"{text}\nlistener.name.{listener}.{mechanism[1].lower()}.sasl.jaas.config={line}\n")


def lines_of_kafka(output: IO[str], node: str) -> None:
    """Print what a node of ours prints, and the lines of Kafka's once what they say is true."""
    for line in output:
        print(line, end="", flush=True)
        if f"serving node={node}" in line:
            print("Replayed UserScramCredentialRecord creating new entry for alice", flush=True)
            print(f"[KafkaRaftServer nodeId={node}] Kafka Server started", flush=True)


def serve(properties: Path) -> NoReturn:
    """Become a node of ours, so that signals reach it; a process beside it adds to what it prints."""
    login(properties)
    [node] = re.findall(r"^node.id=(\d+)$", properties.read_text(), re.MULTILINE)
    end, start = os.pipe()
    if os.fork() == 0:
        os.close(start)
        with open(end, encoding="utf-8") as output:
            lines_of_kafka(output, node)
        os._exit(0)
    os.dup2(start, sys.stdout.fileno())
    os.dup2(start, sys.stderr.fileno())
    os.execv(KRAFT[0], [*KRAFT, "serve", "-c", str(properties)])


def main(name: str, *args: str) -> int:
    ours = os.environ["SUITE_MAKE"] == "ours"
    if name == "kafka-run-class.sh":
        main_class, properties = args
        if ours and main_class == "kafka.Kafka":
            serve(Path(properties))
        kafka = KafkaInstallation.find()
        options = os.environ.get("KAFKA_OPTS", "").split()
        os.execv(kafka.java, kafka.command(main_class, properties, heap="512m", log="info", options=options))
    if ours and name == "kafka-storage.sh":
        return format_directories(Path(args[args.index("-c") + 1]), args)
    kafka = KafkaInstallation.find()
    done = kafka.run(TOOLS[name], *args)
    sys.stdout.write(done.stdout)
    sys.stderr.write(done.stderr)
    return done.returncode


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
