from typing import Any

def write_text(
    code: int, number: Any, sent_at: Any, episode_id: Any, values: tuple[Any, ...]
) -> bytes | None: ...
