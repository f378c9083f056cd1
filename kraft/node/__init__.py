"""The Trio shell: everything of a node that waits. It decides nothing (`kraft.replica` does)."""
