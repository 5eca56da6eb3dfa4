"""OpenID Connect as values: what providers say, what is asked of them, what tokens prove.

The only door to authlib and joserfc. No I/O: time and randomness are arguments."""
