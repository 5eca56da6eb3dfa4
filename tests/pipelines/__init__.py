"""The real Flux, as processes beside API servers, drives this project."""
