"""Renders outputs for people and pipelines: each from one value, a module for each subject."""
