"""One of several programs at a time does the nightly job, and a token keeps a late writer out.

In a checkout:

    $ python3 examples/nightly_lock.py
    the job runs
    the job of yesterday is refused

The quorum has one voter here, so that the example needs nothing else. With three voters, in three programs, the lock
survives the death of any of them: write their addresses into `controller.quorum.voters`.
"""

import socket
import tempfile

import kraft
import kraft.sync

CONFIG = """
process.roles=controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{port}
controller.listener.names=CONTROLLER
listeners=CONTROLLER://127.0.0.1:{port}
log.dirs={folder}/store"""


def one_voter(folder: str) -> kraft.Config:
    """The configuration of a quorum of one voter, whose directory is formatted, on a port that is free."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    config = kraft.Config.parse(CONFIG.format(port=port, folder=folder))
    kraft.format(config, "4r7wkyKkSWiB3LPcgh31RQ")
    return config


class Report:
    """A resource that remembers the highest token, and refuses a writer with a lower one."""

    token = 0

    def write(self, text: str, token: int) -> None:
        if token < self.token:
            print(text, "is refused")
            return
        self.token = token
        print(text)


def main() -> None:
    report = Report()
    with tempfile.TemporaryDirectory() as folder, kraft.sync.open_store(one_voter(folder)) as store:
        with kraft.sync.Lock(store, "nightly job") as held:
            late = held.token
        with kraft.sync.Lock(store, "nightly job") as held:
            report.write("the job runs", held.token)
        report.write("the job of yesterday", late)


if __name__ == "__main__":
    main()
