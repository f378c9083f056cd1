"""`kraft recover`: commands that repair a quorum which has lost its majority."""
