"""Share groups (KIP-932): the share coordinator, the group's side, and the leaders of share partitions."""
