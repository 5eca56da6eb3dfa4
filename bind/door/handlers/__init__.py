"""The handlers of requests to the front door."""
