"""The page of the lab for tests: its parts, node, and a browser that is driven."""
