"""What a screen about a live quorum shows: samples from the controllers, the rows made of them, their layout."""
