cpdef bytes write(int code, number, sent_at, episode_id, tuple values)
