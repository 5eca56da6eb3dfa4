"""The front door: sign-in at a provider, binding spaces for who signed in, and its pages."""
