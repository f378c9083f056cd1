"""The commands that read, compare and keep the files of nodes."""
