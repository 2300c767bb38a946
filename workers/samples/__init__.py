"""Sample tool servers used by the demo and the tests."""
