"""One quorum to which actions happen: the world, its members' interface, and what is observed of them."""
