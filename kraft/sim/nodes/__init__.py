"""The kinds of nodes that a run can consist of, and the settings that are drawn for them."""
