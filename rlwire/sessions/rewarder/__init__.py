"""The rewarder's sessions: `client` and `server`, their common `rules`, and an agent's `steps`."""
