"""Round trip of a trivial method on local IPC, from outside: the Python client's own time is in it.

    WINGMAN_DATA=/tmp/w wingman agent run --display none &
    python3 tests/python/ipc_round_trip.py /tmp/w/agent/agent.sock
"""

import json
import socket
import struct
import sys
import time

CALLS = 20_000


def receive(wire, length):
    data = b""
    while len(data) < length:
        part = wire.recv(length - len(data))
        if not part:
            raise EOFError("the agent closed the connection")
        data += part
    return data


def call(wire, number):
    envelope = {"type": 0, "method": "system.isPaused", "payload": {}, "id": number, "timestamp": 0}
    body = json.dumps(envelope).encode()
    wire.sendall(struct.pack("<I", len(body)) + body)
    (length,) = struct.unpack("<I", receive(wire, 4))
    return json.loads(receive(wire, length))


def main():
    wire = socket.socket(socket.AF_UNIX)
    wire.connect(sys.argv[1])
    answer = call(wire, 0)
    assert answer["payload"]["data"]["success"] is True, answer
    times = []
    for number in range(1, CALLS + 1):
        start = time.perf_counter()
        call(wire, number)
        times.append(time.perf_counter() - start)
    times.sort()
    print(f"figure ipc_round_trip_p50 {times[CALLS // 2] * 1e6:.1f} us")
    print(f"figure ipc_round_trip_p99 {times[CALLS * 99 // 100] * 1e6:.1f} us")


if __name__ == "__main__":
    main()
