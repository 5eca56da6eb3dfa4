"""Permission claims: objects beside the claims, such as Secrets, that may be synced."""
