"""For tests: `rlx`, an exam for RLX servers; `memory`, connections inside one process."""
