"""The commands of `kraft`: where each is, and what `kraft --help` says of it without importing it."""

from __future__ import annotations

from typing import Final, NamedTuple


class Subcommand(NamedTuple):
    """One command.

    Attributes:
        module: The module that defines `NAME_command`.
        about: The first sentence of its help.
    """

    module: str
    about: str


COMMANDS: Final = {
    "acls": Subcommand("kraft.cli.cluster.acls", "List, add and remove access rules."),
    "archive": Subcommand("kraft.cli.files.archive", "Keep a cluster's metadata history for good."),
    "brokers": Subcommand("kraft.cli.cluster.brokers", "List, describe and unregister brokers."),
    "check": Subcommand("kraft.cli.files.check", "Check directories against the invariants."),
    "completion": Subcommand("kraft.cli.run.completion", "Print a shell's completion."),
    "configs": Subcommand("kraft.cli.cluster.configs", "Describe and change settings and quotas."),
    "consume": Subcommand("kraft.cli.cluster.consume", "Print the records of a topic."),
    "decode": Subcommand("kraft.cli.files.decode", "Turn bytes into JSON."),
    "diff": Subcommand("kraft.cli.files.diff", "What differs between two clusters or moments."),
    "doctor": Subcommand("kraft.cli.doctor.command", "Find what is wrong with a quorum."),
    "dump": Subcommand("kraft.cli.files.dump", "Decode the files of a node."),
    "elect": Subcommand("kraft.cli.cluster.elect", "Elect leaders: preferred, or unclean."),
    "environment": Subcommand("kraft.cli.run.environment", "Print the properties in KAFKA_… variables."),
    "features": Subcommand("kraft.cli.cluster.features", "Describe, upgrade and downgrade features."),
    "fleet": Subcommand("kraft.cli.files.fleet", "Tables and questions over many clusters."),
    "format": Subcommand("kraft.cli.run.format", "Prepare a log directory."),
    "groups": Subcommand("kraft.cli.cluster.groups", "List, describe and delete groups; reset offsets."),
    "history": Subcommand("kraft.cli.files.history", "What happened to the cluster, when and why."),
    "man": Subcommand("kraft.cli.man_pages", "Write man pages."),
    "mock": Subcommand("kraft.cli.run.mock", "Run a node or some, in memory or in a directory, for tests."),
    "produce": Subcommand("kraft.cli.cluster.produce", "Write lines to a topic."),
    "quickstart": Subcommand("kraft.cli.run.quickstart", "A cluster on this machine in one line."),
    "quorum": Subcommand("kraft.cli.cluster.quorum", "Show the quorum, and change its voters."),
    "random-uuid": Subcommand("kraft.cli.run.format", "Make a cluster id."),
    "reassign": Subcommand("kraft.cli.cluster.reassign", "Move partitions to other brokers."),
    "recover": Subcommand("kraft.cli.recover.command", "Repair a quorum that lost its majority."),
    "registry": Subcommand("kraft.cli.run.registry", "Serve the schema registry's REST API."),
    "replay": Subcommand("kraft.cli.files.replay", "The cluster as it was at an offset or a time."),
    "serve": Subcommand("kraft.cli.run.serve", "Run one node."),
    "shell": Subcommand("kraft.cli.files.shell", "Walk the metadata like a file system."),
    "sim": Subcommand("kraft.cli.run.sim", "Look for bugs of the protocol in simulated quorums."),
    "top": Subcommand("kraft.cli.cluster.top", "A live view of quorum, brokers, partitions."),
    "topics": Subcommand("kraft.cli.cluster.topics", "List, describe, create, delete and grow topics."),
    "transactions": Subcommand("kraft.cli.cluster.transactions", "List and describe transactions; end hanging ones."),
    "users": Subcommand("kraft.cli.cluster.users", "List, add and remove SCRAM credentials."),
    "watch": Subcommand("kraft.cli.cluster.watch", "Show a live cluster's metadata changes."),
    "whatif": Subcommand("kraft.cli.files.whatif", "What would happen if a broker failed?"),
}

SECTIONS: Final = {
    "Start": ("quickstart", "format", "random-uuid", "serve", "environment"),
    "Administer": (
        *("quorum", "brokers", "topics", "configs", "acls", "users", "features", "groups", "transactions", "elect"),
        *("reassign", "top", "watch"),
    ),
    "Records": ("produce", "consume"),
    "Look into": ("dump", "history", "replay", "shell", "diff", "decode", "archive", "fleet"),
    "Repair": ("doctor", "check", "whatif", "recover"),
    "Test and embed": ("mock", "registry", "sim"),
    "This command": ("completion", "man"),
}
"""All commands by what people want to do, for `kraft --help`."""
