"""The requests of the clients and administrators of a run, and the checks of their answers."""
