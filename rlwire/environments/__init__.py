"""One interface to environments of Gymnasium, dm_env and PettingZoo: single, batched or remote."""
