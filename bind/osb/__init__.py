"""The program that serves kinds of service brokers."""
