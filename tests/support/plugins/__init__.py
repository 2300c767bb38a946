"""Plugins that workers under test load."""
