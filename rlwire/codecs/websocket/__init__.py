"""WebSocket: frames, and the two HTTP messages before them. Source: RFC 6455."""
