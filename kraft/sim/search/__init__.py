"""The search for broken promises: over seeds, over all states, and back to the shortest schedule."""
