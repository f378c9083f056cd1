"""Recovery of a quorum that has lost its majority: inventory of the surviving copies, plan, files to write."""
