"""The demonstration behind scripts/demo: two turns, two interruptions, and what a reader saw of them."""
