"""The front door: sign-in at a provider, binding spaces for users, and its pages."""
