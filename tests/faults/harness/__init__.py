"""What the fault tests are made of: a world of real processes, traffic through it, and invariants over the evidence."""
