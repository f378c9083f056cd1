"""A simulator finds the mistake of a state machine, and the seed repeats the failure on any machine.

In a checkout:

    $ python3 examples/find_a_bug.py
    the sound machine: every promise was kept
    the other one: seed 0 breaks a promise
    …
"""

from random import Random

from account_machine import Accounts, Pay

import kraft
from kraft.sim import InvariantViolated, run, workload_spec_of


class Generous(Accounts):
    """A bug: every tenth payment since the start gets a present, and `snapshot` leaves the count out."""

    payments = 0

    def apply(self, command: Pay, at: kraft.Position) -> dict[str, int]:
        self.payments += 1
        present = 5 if self.payments % 10 == 0 else 0
        return super().apply(Pay(command.account, command.amount + present), at)


def draw(rng: Random) -> Pay:
    return Pay(rng.choice(("ann", "bob")), rng.randint(-50, 100))


def main() -> None:
    run(0, 3, workload_spec=workload_spec_of(Accounts, draw))
    print("the sound machine: every promise was kept")
    for seed in range(20):
        try:
            run(seed, 3, workload_spec=workload_spec_of(Generous, draw))
        except InvariantViolated as violated:
            print(f"the other one: seed {seed} breaks a promise", violated, sep="\n")
            return


if __name__ == "__main__":
    main()
