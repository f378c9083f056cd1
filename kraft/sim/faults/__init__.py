"""What goes wrong in a run: the nemesis, the network, a sender of hostile frames."""
