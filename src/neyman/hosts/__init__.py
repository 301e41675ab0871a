"""The logic that every adapter to a trainer needs, once: `run` puts it together, `terms` has the trainer's words."""
