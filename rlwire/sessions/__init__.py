"""The protocols' rules: which message is allowed when. No I/O, no threads, no clock."""
