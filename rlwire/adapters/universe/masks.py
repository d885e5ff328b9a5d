"""`Mask`: whether an agent may see and act at one index, or the environment is resetting.

Plain values in and out. Not here: where an episode's state comes from
(`rlwire.adapters.universe.links`).
"""

from __future__ import annotations

RUNNING = "running"
"""The state of an environment that can be seen and played."""


class Mask:
    """Opens when an episode runs, and closes when another one begins that does not run yet.

    So what is said of the end of an episode does not close it, and the first frame of the next is
    shown as soon as that runs; and actions for a resetting environment, which might hit a menu of
    it, go nowhere.

    Attributes:
        open: whether the agent may see and act.
        episode_id: the episode that it was last open or closed for.
    """

    __slots__ = ("_episodes", "episode_id", "open")

    def __init__(self, episodes: bool) -> None:
        self._episodes = episodes
        self.close()

    def close(self) -> None:
        """Close until the next episode runs: a reset was asked for, or the remote was lost."""
        self.open = not self._episodes
        self.episode_id: str | None = None

    def follow(self, episode_id: str | None, env_state: str | None) -> bool:
        """Take note of the newest episode and its state; return whether it is open."""
        if not self._episodes:
            return True
        if env_state == RUNNING and episode_id is not None:
            self.open = True
            self.episode_id = episode_id
        elif self.open and episode_id != self.episode_id:
            self.open = False
            self.episode_id = episode_id
        return self.open
