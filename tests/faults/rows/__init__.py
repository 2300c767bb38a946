"""The rows of the fault matrix, one function each: it does the harm to a world of its own and answers a Tally."""
