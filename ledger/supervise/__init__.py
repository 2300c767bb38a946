"""Running several processes as one service: start, watch, restart, stop in order."""
