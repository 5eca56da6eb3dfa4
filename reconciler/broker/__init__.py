"""Service brokers over HTTP: bounded, one turn after another, and never trusted."""
