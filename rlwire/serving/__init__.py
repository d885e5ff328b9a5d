"""Start, drain and stop the servers of all protocols."""
