"""OpenID Connect as values: documents of providers, requests to them, and verified tokens.

The only door to authlib and joserfc. No I/O: time and randomness are arguments."""
