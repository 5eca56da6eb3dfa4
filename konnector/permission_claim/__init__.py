"""Permission claims: the objects beside the claims, such as Secrets, that may pass."""
