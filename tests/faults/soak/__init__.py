"""The soak (row 21 of the fault matrix): many sessions and mutations while something is killed every few seconds."""
