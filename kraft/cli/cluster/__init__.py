"""The commands that ask or change a live cluster over its controllers."""
