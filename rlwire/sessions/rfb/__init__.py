"""RFB's sessions: `client` for a viewer, `server` for a screen."""
