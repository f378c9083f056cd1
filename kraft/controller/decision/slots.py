"""The kinds of work that a controller does by the clock, in the order in which a turn does them (`kraft.agenda`)."""


class Slot:
    """While a decision is in progress, what is listed after it waits."""

    FAILURES = 0
    """News of unexpected exceptions, for the log of the node."""
    DECISIONS = 1
    """The next turn of decisions in progress, and of long answers."""
    LEFTOVERS = 2
    """Objects that are in no image any more."""
    TIMERS = 3
    """Broker sessions and periodic decisions."""
    REGISTRATION = 4
    """The registration of this controller at the active one."""


SLOTS = Slot.REGISTRATION + 1
