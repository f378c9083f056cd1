"""Share groups in the group coordinator: members, epochs, targets, which share partitions have a state, replay."""
