# redis-py's own Lock, told what to do line by line.
#
# Argument: the server's URL. Commands: "acquire KEY MILLISECONDS" answers yes or no; "release KEY" answers
# released or refused.
import sys

import redis
from redis.exceptions import LockError

client = redis.Redis.from_url(sys.argv[1])
locks = {}
print("ready", redis.__version__, flush=True)
for line in sys.stdin:
    words = line.split()
    if words[0] == "acquire":
        lock = client.lock(words[1], timeout=int(words[2]) / 1000)
        granted = lock.acquire(blocking=False)
        if granted:
            locks[words[1]] = lock
        print("yes" if granted else "no", flush=True)
    elif words[0] == "release":
        try:
            locks.pop(words[1]).release()
            print("released", flush=True)
        except (KeyError, LockError):
            print("refused", flush=True)
