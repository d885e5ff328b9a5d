cpdef bytes write_text(int code, number, sent_at, episode_id, tuple values)
