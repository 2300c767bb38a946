"""Edges: adapters to libraries that the rules do not know."""
