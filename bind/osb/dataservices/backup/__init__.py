"""Backups and Restores, and the jobs of a backup manager behind them."""
