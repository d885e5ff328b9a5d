"""Resets of a `RewarderServer`, answered in a thread."""

import threading


def answer_resets(server, answer=None):
    """Call a function with each reset, by default `begin_episode`, while the server runs."""

    def run():
        while server.running:
            request = server.next_reset()
            if request is not None:
                (answer or server.begin_episode)(request)

    threading.Thread(target=run, daemon=True).start()
    return server
