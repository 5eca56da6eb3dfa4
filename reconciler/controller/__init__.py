"""The runtime of reconcilers: queues, controllers, leadership, Events, metrics. Knows no kind."""
