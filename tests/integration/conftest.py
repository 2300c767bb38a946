"""Fixtures of the integration tests that are defined beside what they build."""

from tests.support.service import bench, make_bench, serve

__all__ = ["bench", "make_bench", "serve"]
