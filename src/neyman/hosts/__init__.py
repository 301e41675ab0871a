"""The logic that every adapter to a trainer needs, once."""
