"""`python -m kraft.adapters.patroni`.

A module of its own: to start PostgreSQL, Patroni spawns a process of Python, and that imports the program again unless
its name is `__main__`; the node and all of Patroni would take most of the time of each start.
"""

from kraft.adapters.patroni import main

if __name__ == "__main__":
    main()
