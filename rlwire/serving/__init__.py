"""What servers of all protocols share above the transports: starting, stopping, URLs, batches."""
