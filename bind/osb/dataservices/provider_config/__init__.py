"""A ProviderConfig: its health, and how many objects use it."""
