"""The protocols' rules: which message is allowed in which state. No I/O, threads or clock."""
