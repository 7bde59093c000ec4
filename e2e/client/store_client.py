#!/usr/bin/env python3
"""The unmodified Mooncake client behind a pipe: one JSON request a line on standard input, one JSON answer a line on
standard output.

    {"op": "setup", "master": "10.96.0.7:50051", "host": "10.250.0.2", "segment_bytes": 0, "buffer_bytes": 16777216}
    {"op": "put", "key": "a", "size": 4096}      the value follows from the key: nobody has to ship bytes
    {"op": "get", "key": "a", "size": 4096}      "equal", "missing" or "differs"
    {"op": "exist", "key": "a"}                  1, 0, or an error code of the master
    {"op": "size", "key": "a"}                   bytes, or an error code of the master
    {"op": "remove", "key": "a"}
    {"op": "sample", "interval_ms": 50}          from now on calls Exist, Get and Put again and again
    {"op": "samples"}                            stops that; {"exist": [[began, ended, result], ...], ...}
    {"op": "close"}

An answer is {"result": ..., "began": ns, "ended": ns} or {"error": "..."}; times are of the monotonic clock, which all
processes of a machine share.
"""

import itertools
import json
import os
import random
import sys
import threading
import time

# The engine writes what it likes to standard output; the answers keep the real one to themselves.
ANSWERS = os.fdopen(os.dup(1), "w", buffering=1)
os.dup2(2, 1)

from mooncake.store import MooncakeDistributedStore  # noqa: E402

OBJECT_NOT_FOUND = -704


def value_of(key, size):
    """The bytes that belong to a key."""
    return random.Random(key).randbytes(size)


class Sampler:
    """Calls the store again and again from one thread per operation, and remembers when and how each call ended."""

    def __init__(self, store, interval):
        self.stopping = threading.Event()
        self.samples = {"exist": [], "get": [], "put": []}
        calls = {
            "exist": lambda: store.is_exist("sampler-absent"),
            # The code of a miss is an answer of the master, unlike -900: get() itself would tell neither.
            "get": lambda: store.get_size("sampler-absent"),
            "put": self.put_of(store),
        }
        self.threads = [threading.Thread(target=self.run, args=(n, c, interval)) for n, c in calls.items()]
        for thread in self.threads:
            thread.start()

    @staticmethod
    def put_of(store):
        numbers = itertools.count()
        prefix = f"sampler-{os.getpid()}-{time.monotonic_ns()}"

        def put():
            key = f"{prefix}-{next(numbers)}"
            code = store.put(key, b"sample")
            if code != 0:
                return code
            # A put counts when its value can be read back.
            return 0 if store.get(key) == b"sample" else OBJECT_NOT_FOUND
        return put

    def run(self, name, call, interval):
        while not self.stopping.is_set():
            began = time.monotonic_ns()
            result = call()
            self.samples[name].append([began, time.monotonic_ns(), result])
            self.stopping.wait(interval)

    def stop(self):
        self.stopping.set()
        for thread in self.threads:
            thread.join()
        return self.samples


class Client:
    """The operations, by the name that a request gives."""

    def __init__(self):
        self.store = MooncakeDistributedStore()
        self.sampler = None

    def setup(self, master, host, segment_bytes, buffer_bytes):
        return self.store.setup(host, "P2PHANDSHAKE", segment_bytes, buffer_bytes, "tcp", "", master)

    def put(self, key, size):
        return self.store.put(key, value_of(key, size))

    def get(self, key, size):
        value = self.store.get(key)
        if not value:
            return "missing"
        return "equal" if value == value_of(key, size) else "differs"

    def exist(self, key):
        return self.store.is_exist(key)

    def size(self, key):
        return self.store.get_size(key)

    def remove(self, key):
        return self.store.remove(key)

    def sample(self, interval_ms):
        self.sampler = Sampler(self.store, interval_ms / 1000)

    def samples(self):
        samples = self.sampler.stop()
        self.sampler = None
        return samples

    def close(self):
        return self.store.close()


def main():
    client = Client()
    operations = {name for name in vars(Client) if not name.startswith("_")}
    for line in sys.stdin:
        began = time.monotonic_ns()
        try:
            request = json.loads(line)
            operation = request.pop("op")
            if operation not in operations:
                raise ValueError(f"op: {operation!r} is none of {sorted(operations)}")
            result = getattr(client, operation)(**request)
            answer = {"result": result, "began": began, "ended": time.monotonic_ns()}
        except Exception as error:  # the other side decides what an error means
            answer = {"error": f"{type(error).__name__}: {error}"}
        ANSWERS.write(json.dumps(answer) + "\n")
    # The engine's own threads do not always end by themselves.
    ANSWERS.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
