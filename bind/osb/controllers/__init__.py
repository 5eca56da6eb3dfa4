"""Reconciles claims, records and brokers: looks, decides, writes, and calls brokers."""
