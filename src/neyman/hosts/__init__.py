"""The logic that every adapter to a trainer needs, once: `run` puts it together, in the words of `terms`."""
