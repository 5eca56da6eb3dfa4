"""Who we are at an API server: tokens, certificates and credential plug-ins, kept fresh."""
