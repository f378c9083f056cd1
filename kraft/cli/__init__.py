"""The command line: arguments and printing, no logic."""
