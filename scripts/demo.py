#!/usr/bin/env python3
"""What the product is for, shown with the unmodified client: put 100 objects through the Service, read them back, lose
the active master, put and read again with the same client.

usage: demo.py --kubectl PATH --resource KIND/NAME --node-address IP --kill SCRIPT --log FILE -- CLIENT COMMAND...
"""

import argparse
import json
import math
import os
import subprocess
import sys
import time

OBJECTS = 100
LARGEST = 4 << 20
SEGMENT = 128 << 20
BUFFER = 32 << 20
PATIENCE = 60  # seconds until the client must be able to put again


class Client:
    """The client process, one request at a time."""

    def __init__(self, command, address, log):
        environment = os.environ | {
            "MC_TCP_BIND_ADDRESS": address,
            # Short, so that a call which went to a dead master ends while somebody is watching.
            "MC_RPC_TIMEOUT_MS": "1000",
            "MC_RPC_CONNECT_TIMEOUT_MS": "1000",
        }
        # The engine's own log goes to a file: it is long, and errors in it are expected while there is no active.
        self.log = open(log, "w")
        self.process = subprocess.Popen(command, env=environment, text=True, bufsize=1,
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.log)

    def __call__(self, op, **arguments):
        self.process.stdin.write(json.dumps({"op": op} | arguments) + "\n")
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit(f"the client ended with {self.process.wait()}; its log: {self.log.name}")
        answer = json.loads(line)
        if "error" in answer:
            raise SystemExit(f"{op}: {answer['error']}; the client's log: {self.log.name}")
        return answer["result"]


def sizes():
    """From 1 byte to 4 MiB, evenly on a logarithmic scale."""
    return [round(math.exp(math.log(LARGEST) * i / (OBJECTS - 1))) for i in range(OBJECTS)]


def say(text):
    print(f"   {time.monotonic() - BEGAN:5.1f} s  {text}", flush=True)


def expect(what, wanted, found):
    if wanted != found:
        raise SystemExit(f"{what}: {wanted!r} expected, {found!r} found")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kubectl", required=True)
    parser.add_argument("--resource", required=True)
    parser.add_argument("--node-address", required=True)
    parser.add_argument("--kill", required=True)
    parser.add_argument("--log", required=True)
    parser.add_argument("client", nargs="+")
    arguments = parser.parse_args()

    def get(resource):
        return json.loads(subprocess.check_output([arguments.kubectl, "get", resource, "-o", "json"]))

    name = arguments.resource.split("/")[-1]
    service = get(f"service/{name}")
    namespace = service["metadata"]["namespace"]
    port = next(p["port"] for p in service["spec"]["ports"] if p["name"] == "rpc")
    master = f"{service['spec']['clusterIP']}:{port}"

    client = Client(arguments.client, arguments.node_address, arguments.log)
    expect("setup", 0, client("setup", master=master, host=arguments.node_address, segment_bytes=SEGMENT, buffer_bytes=BUFFER))
    say(f"a client mounted {SEGMENT >> 20} MiB through the Service, {master}")

    objects = [(f"object-{i}", size) for i, size in enumerate(sizes())]
    for key, size in objects:
        expect(f"put {key}", 0, client("put", key=key, size=size))
    for key, size in objects:
        expect(f"get {key}", "equal", client("get", key=key, size=size))
    say(f"{OBJECTS} objects of 1 B to 4 MiB put and read back, byte for byte")

    before = get(arguments.resource)["status"]
    active = before["active"]["pod"]
    killed = subprocess.check_output([arguments.kill, namespace, active], text=True).split()
    lost = time.monotonic()
    say(f"killed the active: {active}, container {killed[0][:12]}, pid {killed[1]} (epoch {before['epoch']})")

    attempts = 0
    while client("put", key=f"after-{attempts}", size=4096) != 0 or client("get", key=f"after-{attempts}", size=4096) != "equal":
        attempts += 1
        if time.monotonic() - lost > PATIENCE:
            raise SystemExit(f"the client could not put within {PATIENCE} s; its log: {client.log.name}")
        time.sleep(0.1)
    say(f"the same client, never restarted, puts and gets again {time.monotonic() - lost:.1f} s after the kill")

    while True:
        status = get(arguments.resource)["status"]
        if status["epoch"] > before["epoch"]:
            break
        if time.monotonic() - lost > PATIENCE:
            raise SystemExit(f"the status still shows epoch {status['epoch']}")
        time.sleep(0.2)
    say(f"the active is {status['active']['pod']}, epoch {status['epoch']}")
    client("close")


BEGAN = time.monotonic()
if __name__ == "__main__":
    sys.exit(main())
