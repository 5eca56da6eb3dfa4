"""What the konnector decides, as values. No module in here reads, writes, waits or logs."""
