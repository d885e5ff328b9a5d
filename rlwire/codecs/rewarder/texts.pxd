cpdef bytes write(int code, number, sent_at, episode_id, value, done=*)
