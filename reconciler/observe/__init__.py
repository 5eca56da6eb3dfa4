"""What is live in all clusters of a fleet: complete per cluster, or said to be unseen."""
