"""The agent that carries claims up, and status and credentials down."""
