#!/usr/bin/env python3
"""The agent link in another language, from the standard library alone.

    wingman_client.py vectors DIR            check every vector of DIR
    wingman_client.py make-vectors DIR       write the vectors that are missing
    wingman_client.py agent HOST:PORT --token T [--challenge] [--id ID]
                                             be an agent of protocol 1 until the server closes
    wingman_client.py server [--port P] --token T [--challenge]
                                             be an old server: register one agent, ask it everything,
                                             print the answers as JSON lines

     0        4        8   9      12       16
     | length | seq    |typ| pad  |reserved| body ...
       u32 LE   u32 LE  u8   3 B    u32 LE    `length` bytes
"""

import argparse
import base64
import hashlib
import hmac
import json
import os
import pathlib
import socket
import struct
import sys
import time

HEADER = struct.Struct("<IIB3xI")
BODY_LEN_MAX = 16 * 1024 * 1024
DATA_LEN_MAX = 32 * 1024 + 1
TYPES = {"request": 1, "response": 2, "notify": 3, "error": 4, "data": 5}
NAMES = {number: name for name, number in TYPES.items()}


class Reject(Exception):
    """Bytes that the protocol refuses, with the stable code."""

    def __init__(self, code, offset):
        super().__init__(f"{code} at byte {offset}")
        self.code, self.offset = code, offset


def encode(kind, sequence, body, channel=0):
    return HEADER.pack(len(body), sequence, TYPES[kind], channel) + body


def decode(data, protocol, offset=0):
    """One frame and the offset after it; None when it has not arrived as a whole."""
    if len(data) - offset < HEADER.size:
        return None
    length, sequence, number, channel = HEADER.unpack_from(data, offset)
    if number not in NAMES or (number == 5 and protocol < 2):
        raise Reject("frame_invalid", offset + 8)
    if length > (DATA_LEN_MAX if number == 5 else BODY_LEN_MAX):
        raise Reject("frame_too_large", offset)
    end = offset + HEADER.size + length
    if len(data) < end:
        return None
    body = data[offset + HEADER.size : end]
    return (NAMES[number], sequence, channel if number == 5 else 0, body), end


def decode_all(data, protocol):
    frames, offset = [], 0
    while True:
        step = decode(data, protocol, offset)
        if step is None:
            break
        frame, offset = step
        frames.append(frame)
    if offset != len(data):
        raise Reject("frame_invalid", offset)
    return frames


def read_message(body):
    """The JSON object of a body, or a Reject."""
    try:
        value = json.loads(body.decode("utf-8"))
    except (UnicodeDecodeError, ValueError, RecursionError):
        raise Reject("invalid_message", 0) from None
    if not isinstance(value, dict):
        raise Reject("invalid_message", 0)
    return value


# Vectors.


def frame_json(frame):
    kind, sequence, channel, body = frame
    row = {"type": kind, "sequence": sequence}
    if kind == "data":
        row["channel"] = channel
        row["hex"] = body.hex()
    elif body in (b"PING", b"PONG") or not body:
        row["text"] = body.decode()
    else:
        row["body"] = json.loads(body)
    return row


def check_vectors(folder):
    count = 0
    for path in sorted(folder.glob("*.json")):
        expected = json.loads(path.read_text())
        data = path.with_suffix(".bin").read_bytes()
        frames = decode_all(data, expected["protocol"])
        if [frame_json(frame) for frame in frames] != expected["frames"]:
            raise SystemExit(f"{path.name}: the frames differ")
        again = b"".join(encode(k, s, b, c) for k, s, c, b in frames)
        if again != data:
            raise SystemExit(f"{path.name}: encoding again gives other bytes")
        count += 1
    for path in sorted((folder / "rejects").glob("*.json")):
        expected = json.loads(path.read_text())
        data = path.with_suffix(".bin").read_bytes()
        try:
            for kind, _, _, body in decode_all(data, expected["protocol"]):
                if kind != "data" and body not in (b"PING", b"PONG"):
                    message = read_message(body)
                    if kind == "notify" and not isinstance(message.get("type"), str):
                        raise Reject("invalid_message", 0)
        except Reject as reject:
            if reject.code != expected["code"]:
                raise SystemExit(f"{path.name}: {reject.code}, not {expected['code']}")
        else:
            raise SystemExit(f"{path.name}: was not refused")
        count += 1
    if count == 0:
        raise SystemExit(f"no vectors in {folder}")
    return count


RECORD = {
    "schemaVersion": 1,
    "sequence": 42,
    "eventId": "0f0e0d0c0b0a09080706050403020100",
    "observedAt": 1764541387004,
    "committedAt": 1764541387005,
    "sessionId": "run-1",
    "stream": "executions",
    "type": "execution.created",
    "source": {"moduleId": "node", "instanceId": "i-1", "runtime": "wingman"},
    "payload": {"executionId": "run-1"},
}
RESOURCES = {
    "cpu": {"usage": 12.5, "cores": 2, "model": "x"},
    "memory": {"total": 8, "available": 4, "usage": 50.0},
    "disk": {"total": 10, "available": 9, "usage": 10.0},
    "network": {"up": 1.5, "down": 2.5, "localIp": "10.0.0.7", "publicIp": None},
    "system": {"temperature": None, "os": "Linux", "arch": "x86_64"},
}
REGISTER_1 = {
    "type": "agent.register",
    "agentId": "agent_desk_1234",
    "hostname": "desk",
    "platform": "desktop",
    "capabilities": ["screen.capture", "input.mouse"],
    "token": "tok-1",
}
REGISTER_2 = {
    "type": "agent.register",
    "agentId": "desk-1",
    "instanceId": "i-1",
    "hostname": "desk",
    "platform": "linux",
    "arch": "x86_64",
    "version": "0.1.0",
    "protocol": 2,
    "capabilities": ["screen.capture", "hologram"],
    "journal": {"firstSeq": 1, "nextSeq": 43},
}


def note(message, **fields):
    return ("notify", 0, {"type": message, **fields})


def ask(method, sequence, **fields):
    return ("request", sequence, {"type": method, "method": method, "sequence": sequence, **fields})


def vector_table():
    """Name -> (protocol, [(kind, sequence, body or bytes[, channel])])."""
    nonce = "00112233445566778899aabbccddeeff" * 2
    answer = challenge_hmac("tok-1", nonce)
    beat = {"status": "online", "resources": RESOURCES}
    health = {
        "reconnects": 1,
        "dropped": 0,
        "outboxPending": 0,
        "lastDisconnectReason": "closed",
        "sessionUptimeMs": 5000,
    }
    return {
        "v1-heartbeat-bare": (1, [note("agent.heartbeat")]),
        "v1-ping-pong": (1, [("notify", 0, b"PING"), ("notify", 0, b"PONG")]),
        "v1-register-token": (1, [note_of(REGISTER_1), note("agent.register_ack", success=True, agentId="agent_desk_1234")]),
        "v1-register-refused": (1, [note("agent.register_ack", success=False, agentId="", error="invalid or missing token", code="token_invalid")]),
        "v1-register-challenge": (1, [
            note_of({**{k: v for k, v in REGISTER_1.items() if k != "token"}, "challenge": True}),
            ask("auth.challenge", 0, nonce=nonce),
            ("response", 0, {"success": True, "method": "auth.challenge", "data": {"hmac": answer}}),
        ]),
        "v1-register-object-capabilities": (1, [note("agent.register", agentId="phone", hostname="phone", platform="android", capabilities={"apiLevel": 33})]),
        "v1-heartbeat": (1, [note("agent.heartbeat", **beat, link=health)]),
        "v1-run-script": (1, [
            ask("run_script", 0, path="a.lua", timeout="5000"),
            ("response", 0, {"success": True, "method": "run_script", "data": {"scriptId": "run-1"}}),
        ]),
        "v1-stop-script": (1, [ask("stop_script", 1, script_id="run-1"), ("response", 1, {"success": False, "method": "stop_script", "error": "missing script_id parameter"})]),
        "v1-get-status": (1, [ask("get_status", 2)]),
        "v1-list-windows": (1, [
            ask("list_windows", 3),
            ("response", 3, {"success": True, "method": "list_windows", "data": [{"handle": 7, "title": "xterm", "isForeground": True, "bounds": {"x": 0, "y": 0, "width": 10, "height": 5}}]}),
        ]),
        "v1-screenshot": (1, [ask("screenshot.capture", 4, displayId="0", region={"x": 0, "y": 0, "width": 2, "height": 1})]),
        "v1-shutdown": (1, [ask("system.shutdown", 5)]),
        "v1-event-output": (1, [note("agent.event", event="script_output", data={"scriptId": "run-1", "message": "hello", "level": "info"})]),
        "v1-event-state": (1, [note("agent.event", event="script_state", data={"scriptId": "run-1", "state": "stopped"})]),
        "v1-empty-body": (1, [("notify", 0, b"")]),
        "v2-register": (2, [
            note_of(REGISTER_2),
            note("agent.register_ack", success=True, agentId="desk-1", protocol=2, epoch=3, heartbeatMs=10000, resumeFrom=40),
        ]),
        "v2-register-busy": (2, [note("agent.register_ack", success=False, agentId="", error="too many agents register at once", code="busy", retryMs=250)]),
        "v2-enroll": (2, [
            ask("agent.enroll", 0, params={"inviteId": "00112233445566778899aabbccddeeff", "secret": "ffeeddccbbaa99887766554433221100", "agentId": "desk-1", "hostname": "desk", "platform": "linux"}),
            ("response", 0, {"success": True, "method": "agent.enroll", "data": {"agentId": "desk-1"}}),
        ]),
        "v2-heartbeat": (2, [note("agent.heartbeat", status="busy", currentTask="a.lua", resources=RESOURCES, link=health)]),
        "v2-capabilities": (2, [note("agent.capabilities", capabilities=["terminals"])]),
        "v2-event": (2, [note("agent.event", event="execution.created", data=RECORD, seq=42), note("journal.ack", seq=42)]),
        "v2-request": (2, [
            ask("script.run", 0, commandId="c-1", timeoutMs=30000, params={"source": "log.info('hi')", "language": "lua", "timeoutMs": 500}),
            ("response", 0, {"success": True, "method": "script.run", "data": {"executionId": "run-1"}}),
        ]),
        "v2-request-fault": (2, [("response", 4294967295, {"success": False, "method": "capture.create", "error": "a stored capture is being made", "code": "capture_busy"})]),
        "v2-cancel": (2, [note("link.cancel", sequence=7)]),
        "v2-error": (2, [("error", 0, {"code": "agent_revoked", "message": "desk-1 was revoked"})]),
        "v2-blob": (2, [
            ("response", 9, {"success": True, "method": "screenshot.capture", "data": {"width": 2}, "channel": 1, "size": 5, "contentType": "image/jpeg", "field": "image"}),
            ("data", 0, b"\x00\xff\xd8\xff", 1),
            ("data", 1, b"\x00\xff\xd9", 1),
            note("channel.close", channel=1, reason="done"),
        ]),
        "v2-stream": (2, [
            ask("session.attach", 3, timeoutMs=0, params={"sessionId": "3f2a", "cols": 80, "rows": 24}),
            ("response", 3, {"success": True, "method": "session.attach", "channel": 3, "data": {"consoleId": "c-1", "offset": 12, "snapshotBytes": 4, "truncated": False}}),
            ("data", 0, b'\x01{"type":"attached","since":12,"truncated":false,"snapshot_bytes":4,"cols":80,"rows":24}', 3),
            ("data", 1, b"\x02\x1b[2J", 3),
            ("data", 2, b"\x00$ ", 3),
            ("data", 0, b"\x00ls\r", 3),
            ("data", 1, b'\x01{"type":"resize","cols":100,"rows":30}', 3),
            ("data", 3, b'\x01{"type":"screen","offset":9000,"length":3,"cols":100,"rows":30}', 3),
            ("data", 4, b"\x03\x1b[H", 3),
            ("data", 5, b"\x00\xff\x00", 3),
            note("channel.credit", channel=3, bytes=16384),
            ("data", 6, b'\x01{"type":"exit","exit_code":0}', 3),
            note("channel.close", channel=3, reason="done"),
        ]),
        "v2-stream-refused": (2, [
            ("response", 4, {"success": False, "method": "session.attach", "error": "protocol 1 has no streams", "code": "unsupported"}),
            ("data", 0, b"\x01", 5),
            note("channel.close", channel=5, reason="channel_invalid"),
        ]),
        "v2-credit": (2, [note("channel.credit", channel=1, bytes=65536)]),
    }


def note_of(fields):
    return ("notify", 0, fields)


def reject_table():
    """Name -> (protocol, bytes, code)."""
    ping = encode("notify", 0, b"PING")
    return {
        "oversize-json": (2, HEADER.pack(BODY_LEN_MAX + 1, 0, 3, 0), "frame_too_large"),
        "oversize-length-all-ones": (1, b"\xff" * 4 + b"\0\0\0\0\x03" + b"\0" * 7, "frame_too_large"),
        "oversize-data": (2, HEADER.pack(DATA_LEN_MAX + 1, 0, 5, 1), "frame_too_large"),
        "oversize-after-good": (1, ping + HEADER.pack(BODY_LEN_MAX + 1, 0, 1, 0), "frame_too_large"),
        "type-zero": (2, HEADER.pack(0, 0, 0, 0), "frame_invalid"),
        "type-unknown": (2, HEADER.pack(0, 0, 6, 0), "frame_invalid"),
        "data-on-protocol-1": (1, encode("data", 0, b"\x00x", 1), "frame_invalid"),
        "http-request": (1, b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", "frame_invalid"),
        "tls-hello": (1, bytes.fromhex("16030100f8010000f40303") + bytes(5), "frame_invalid"),
        "truncated-header": (2, ping + b"\x04\0\0", "frame_invalid"),
        "truncated-body": (2, ping[:-1], "frame_invalid"),
        "notify-not-utf8": (1, encode("notify", 0, b'{"type":"\xff\xfe"}'), "invalid_message"),
        "notify-not-json": (1, encode("notify", 0, b"{"), "invalid_message"),
        "notify-array": (2, encode("notify", 0, b"[]"), "invalid_message"),
        "notify-without-type": (2, encode("notify", 0, b"{}"), "invalid_message"),
        "notify-type-number": (2, encode("notify", 0, b'{"type":7}'), "invalid_message"),
        "notify-deep": (2, encode("notify", 0, b'{"type":"x","v":' + b"[" * 5000), "invalid_message"),
    }


def make_vectors(folder):
    """Writes what is missing: a released vector never changes."""
    (folder / "rejects").mkdir(parents=True, exist_ok=True)
    for name, (protocol, rows) in vector_table().items():
        frames, data = [], b""
        for row in rows:
            kind, sequence, body = row[:3]
            channel = row[3] if len(row) > 3 else 0
            if not isinstance(body, bytes):
                body = json.dumps(body, separators=(",", ":")).encode()
            frames.append(frame_json((kind, sequence, channel, body)))
            data += encode(kind, sequence, body, channel)
        write_new(folder / name, data, {"protocol": protocol, "frames": frames})
    for name, (protocol, data, code) in reject_table().items():
        write_new(folder / "rejects" / name, data, {"protocol": protocol, "code": code})


def write_new(stem, data, description):
    binary = stem.with_name(stem.name + ".bin")
    if not binary.exists():
        binary.write_bytes(data)
        text = json.dumps(description, indent=2, ensure_ascii=False)
        stem.with_name(stem.name + ".json").write_text(text + "\n")


# Protocol 1, live.


def challenge_hmac(token, nonce):
    key = hashlib.sha256(token.encode()).hexdigest().encode()
    return hmac.new(key, nonce.encode(), hashlib.sha256).hexdigest()


class Link:
    """A connection of protocol 1."""

    def __init__(self, stream):
        self.stream, self.data, self.sequence = stream, b"", 0

    def read(self):
        """The next frame; None at the end."""
        while True:
            step = decode(self.data, 1)
            if step is not None:
                frame, end = step
                self.data = self.data[end:]
                return frame
            part = self.stream.recv(65536)
            if not part:
                if self.data:
                    raise Reject("frame_invalid", 0)
                return None
            self.data += part

    def send(self, kind, sequence, body):
        if not isinstance(body, bytes):
            body = json.dumps(body, separators=(",", ":")).encode()
        self.stream.sendall(encode(kind, sequence, body))

    def notify(self, message, **fields):
        self.send("notify", 0, {"type": message, **fields})

    def call(self, method, notices, **params):
        """Sends a request and waits for its response; notices go to `notices`."""
        sequence = self.sequence
        self.sequence += 1
        self.send("request", sequence, {"type": method, "method": method, "sequence": sequence, **params})
        while True:
            frame = self.read()
            if frame is None:
                raise SystemExit(f"{method}: the agent closed the link")
            kind, answered, _, body = frame
            if kind == "response" and answered == sequence:
                return read_message(body)
            if kind == "notify":
                self.take_notice(body, notices)

    def take_notice(self, body, notices):
        if body == b"PING":
            self.send("notify", 0, b"PONG")
        elif body != b"PONG":
            notices.append(read_message(body))


def say(**fields):
    print(json.dumps(fields), flush=True)


def run_agent(options):
    host, port = options.address.rsplit(":", 1)
    link = Link(socket.create_connection((host.strip("[]"), int(port)), timeout=60))
    register = {"agentId": options.id, "hostname": "python", "platform": "desktop", "capabilities": ["screen.capture"]}
    if options.challenge:
        link.notify("agent.register", **register, challenge=True)
    else:
        link.notify("agent.register", **register, token=options.token)
    while (frame := link.read()) is not None:
        kind, sequence, _, body = frame
        if body == b"PING":
            link.send("notify", 0, b"PONG")
        elif kind == "notify":
            message = read_message(body)
            say(notice=message)
            if message["type"] == "agent.register_ack" and message["success"]:
                link.notify("agent.heartbeat", status="online", resources=RESOURCES)
        elif kind == "request":
            request = read_message(body)
            say(request=request)
            answer_request(link, sequence, request, options.token)
        elif kind == "error":
            say(error=read_message(body))


def answer_request(link, sequence, request, token):
    method = request.get("method") or request["type"]
    data, error = None, None
    if method == "auth.challenge":
        data = {"hmac": challenge_hmac(token, request["nonce"])}
    elif method == "run_script":
        if not request.get("path"):
            error = "missing path parameter"
        else:
            data = {"scriptId": "py-1"}
    elif method == "stop_script":
        data = {}
    elif method == "get_status":
        data = {"mode": 1, "scripts": []}
    elif method == "list_windows":
        data = [{"handle": 7, "title": "xterm", "isForeground": True, "bounds": {"x": 1, "y": 2, "width": 3, "height": 4}}]
    elif method == "screenshot.capture":
        image = "data:image/jpeg;base64," + base64.b64encode(b"jpeg").decode()
        data = {"image": image, "width": 2, "height": 1, "timestamp": int(time.time() * 1000)}
    else:
        error = f"unknown command: {method}"
    if error is None:
        link.send("response", sequence, {"success": True, "method": method, "data": data})
    else:
        link.send("response", sequence, {"success": False, "method": method, "error": error})
    if method == "run_script" and error is None:
        link.notify("agent.event", event="script_output", data={"scriptId": "py-1", "message": "hello", "level": "info"})
        link.notify("agent.event", event="script_state", data={"scriptId": "py-1", "state": "stopped"})


def run_server(options):
    listener = socket.create_server(("127.0.0.1", options.port))
    say(listening=listener.getsockname()[1])
    stream, _ = listener.accept()
    stream.settimeout(60)
    link = Link(stream)
    kind, _, _, body = link.read()
    register = read_message(body)
    assert kind == "notify" and register["type"] == "agent.register", register
    notices = []
    if register.get("challenge"):
        nonce = os.urandom(32).hex()
        reply = link.call("auth.challenge", notices, nonce=nonce)
        good = hmac.compare_digest(reply["data"]["hmac"], challenge_hmac(options.token, nonce))
    else:
        good = hmac.compare_digest(register.get("token", ""), options.token)
    register.pop("token", None)
    say(register=register, good=good)
    if not good:
        link.notify("agent.register_ack", success=False, agentId="", error="invalid or missing token")
        return
    link.notify("agent.register_ack", success=True, agentId=register["agentId"])
    for method, params in [
        ("get_status", {}),
        # As the old server does: texts where numbers belong.
        ("run_script", {"path": "hello.lua", "content": "log.info('hi')", "timeout": "5000", "who": "you"}),
        ("list_windows", {}),
        ("screenshot.capture", {"displayId": "0"}),
        ("stop_script", {}),
        ("trigger.list", {}),
    ]:
        say(method=method, reply=link.call(method, notices, **params))
    while not any(notice["type"] == "agent.event" for notice in notices):
        frame = link.read()
        if frame is None:
            break
        if frame[0] == "notify":
            link.take_notice(frame[3], notices)
    for notice in notices:
        say(notice=notice)


def main():
    parser = argparse.ArgumentParser(description="The agent link from the standard library alone.")
    commands = parser.add_subparsers(dest="command", required=True)
    for name in ("vectors", "make-vectors"):
        commands.add_parser(name).add_argument("folder", type=pathlib.Path)
    agent = commands.add_parser("agent")
    agent.add_argument("address")
    agent.add_argument("--id", default="agent_python_1000")
    server = commands.add_parser("server")
    server.add_argument("--port", type=int, default=0)
    for command in (agent, server):
        command.add_argument("--token", default="")
        command.add_argument("--challenge", action="store_true")
    options = parser.parse_args()
    if options.command == "vectors":
        print(f"{check_vectors(options.folder)} vectors hold")
    elif options.command == "make-vectors":
        make_vectors(options.folder)
    elif options.command == "agent":
        run_agent(options)
    else:
        run_server(options)


if __name__ == "__main__":
    sys.exit(main())
