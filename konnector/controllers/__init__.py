"""From views to decisions to writes; each controller is as thin as that."""
