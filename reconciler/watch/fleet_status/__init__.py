"""Writes the state of a fleet as a FleetStatus, for kubectl, kstatus and the next process."""
