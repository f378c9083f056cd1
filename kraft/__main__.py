"""`python -m kraft` is the `kraft` command."""

from kraft.cli.main import main

main()
