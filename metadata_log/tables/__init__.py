"""Tables of files from metadata logs: histories that grow by each day's records (`kraft fleet materialize`).

`increment` is the pure core: a saved pass and new items in, rows and the next saved pass out. `commit` makes the result
of one step visible at once, and survives a crash between any two writes. `cluster` does one cluster.
"""
