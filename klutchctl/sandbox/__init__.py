"""Runs API servers as processes on one machine: finds or builds, starts and stops them."""
