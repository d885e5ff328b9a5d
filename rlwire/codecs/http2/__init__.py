"""HTTP/2 frames, the gRPC messages in them, and header fields."""
