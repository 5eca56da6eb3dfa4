"""What runs reconcilers: queues, controllers, leadership, Events, metrics. Knows no kind."""
