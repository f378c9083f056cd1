"""A screen about a live quorum: samples from the controllers, the rows made of them, their layout."""
