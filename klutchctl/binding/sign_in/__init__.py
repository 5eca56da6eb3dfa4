"""The ways to sign in at a provider: by a browser, a device code, or as a machine."""
