"""Recordings of a wire: read them, decode their messages, replay and export them."""
