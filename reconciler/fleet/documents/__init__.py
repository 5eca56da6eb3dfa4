"""The documents of a fleet repository: their form, and how they are read from text."""
