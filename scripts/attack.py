#!/usr/bin/env python3
"""What hostile requests cost a server: attack.py DUET [MODEL]

Starts `DUET serve [MODEL]` on a free port of the loopback. For each attack it prints how it was answered, how long the
attack took, the server's peak of resident memory above idle, and how long a person waited for "Say hi." meanwhile,
against how long alone (the median of several). With --json, a line of JSON for each attack instead.

The aims: a person waits at most 1.5 times as long, and memory grows by at most 300 MB. The exit status is 1 if an
attack was answered otherwise than it should be, or if the server died; times are for a reader to judge, since they
depend on what else the machine does.
"""

import argparse
import http.client
import json
import os
import re
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time

CHAT = "/v1/chat/completions"
MB = 1_000_000
START_TIME_MAX = 120


class Server:
    """The server under attack."""

    def __init__(self, command):
        self.log = tempfile.NamedTemporaryFile("w+", suffix=".log")
        self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log)
        end = time.monotonic() + START_TIME_MAX
        self.port = None
        while self.port is None and time.monotonic() < end and self.process.poll() is None:
            time.sleep(0.2)
            with open(self.log.name) as log:
                found = re.search(r"is served at http://127\.0\.0\.1:(\d+)", log.read())
            self.port = int(found.group(1)) if found else None
        if self.port is None:
            self.stop()
            with open(self.log.name) as log:
                sys.exit(f"the server did not start:\n{log.read()}")

    def resident(self):
        """Bytes of memory that it has now."""
        with open(f"/proc/{self.process.pid}/statm") as statm:
            return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    def stop(self):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(20)
            except subprocess.TimeoutExpired:
                self.process.kill()
        return self.process.wait()


def post(port, body, timeout=120):
    """Sends a body; the status, or what went wrong."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=timeout)
    try:
        connection.request("POST", CHAT, body, {"content-type": "application/json"})
        response = connection.getresponse()
        response.read()
        return response.status
    except (OSError, http.client.HTTPException) as error:
        return type(error).__name__
    finally:
        connection.close()


def chat(content, **fields):
    return json.dumps({"messages": [{"role": "user", "content": content}], **fields}).encode()


def say_hi(port):
    """How long a person waits for a short answer."""
    begun = time.monotonic()
    status = post(port, chat("Say hi.", max_tokens=8, temperature=0))
    return time.monotonic() - begun, status


def at_once(port, bodies):
    """Sends all bodies at the same time; their statuses."""
    statuses = [None] * len(bodies)

    def send(index):
        statuses[index] = post(port, bodies[index])

    threads = [threading.Thread(target=send, args=(index,)) for index in range(len(bodies))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return statuses


def zeros(size):
    return b"0," * (size // 2) + b"0"


def unknown_field(port):
    body = chat("hi", max_tokens=4)[:-1] + b', "x": [' + zeros(9_800_000) + b"]}"
    return at_once(port, [body] * 6), {200, 429}


def nested_values(port):
    body = b'{"messages": [{"role": "user", "content": "hi", "x": [' + zeros(9_800_000) + b"]}]}"
    return at_once(port, [body] * 6), {413, 429}


def prediction(port):
    body = chat("hi", prediction={"type": "content", "content": "word " * 1_900_000})
    return at_once(port, [body] * 6), {400, 429}


def long_prompts(port):
    return at_once(port, [chat("word " * 1_900_000)] * 8), {400, 429}


def one_long_word(port):
    return at_once(port, [chat(" " * 9_500_000 + "x")] * 4 + [chat("a" * 9_500_000)] * 4), {400, 429}


def full_context(port):
    """Prompts that only just do not fit, so that the most is read of them before they are refused."""
    return at_once(port, [chat("a b c d e f g h " * 2_000)] * 16), {200, 400, 429}


def temperature(port):
    return at_once(port, [chat("hi", temperature=1e-39, max_tokens=8)]), {200}


def stop_strings(port):
    return at_once(port, [chat("hi", stop=["a" * 400_000] * 16)]), {400}


def many_messages(port):
    body = json.dumps({"messages": [{"role": "user", "content": ""}] * 250_000}).encode()
    return at_once(port, [body] * 4), {400, 413, 429}


def slow_senders(port):
    """Connections that send one byte; whether they are gone after their time is out."""
    sockets = []
    for _ in range(900):
        sender = socket.create_connection(("127.0.0.1", port), timeout=60)
        sender.sendall(b"P")
        sockets.append(sender)
    # A person comes in among them; their time is 30 seconds.
    statuses = [say_hi(port)[1]]
    end = time.monotonic() + 45
    gone = 0
    for sender in sockets:
        sender.settimeout(max(0.1, end - time.monotonic()))
        try:
            gone += sender.recv(1) == b""
        except ConnectionResetError:
            gone += 1
        except TimeoutError:
            pass
        sender.close()
    return statuses + [f"{gone} of {len(sockets)} closed"], {200, f"{len(sockets)} of {len(sockets)} closed"}


ATTACKS = [
    ("six bodies of 9.8 MB with an unknown field", unknown_field),
    ("six bodies of 9.8 MB with a nested unknown field", nested_values),
    ("six predictions of 9.5 MB", prediction),
    ("eight prompts of 9.5 MB", long_prompts),
    ("eight words of 9.5 MB", one_long_word),
    ("sixteen prompts at the length of the context", full_context),
    ("four times 250,000 messages", many_messages),
    ("temperature 1e-39", temperature),
    ("sixteen stop strings of 400 kB", stop_strings),
    ("900 connections that send one byte", slow_senders),
]


class Watch:
    """Asks for "Say hi." again and again, and looks at the server's memory, while an attack goes on."""

    def __init__(self, server):
        self.server = server
        self.waits, self.statuses, self.peak = [], set(), server.resident()
        self.ended = threading.Event()
        self.threads = [threading.Thread(target=run) for run in (self.ask, self.look)]

    def __enter__(self):
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self.ended.set()
        for thread in self.threads:
            thread.join()

    def ask(self):
        # At least one, however short the attack is.
        while not self.waits or not self.ended.is_set():
            wait, status = say_hi(self.server.port)
            self.waits.append(wait)
            self.statuses.add(status)
            time.sleep(0.02)

    def look(self):
        while not self.ended.wait(0.005):
            self.peak = max(self.peak, self.server.resident())


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("duet")
    parser.add_argument("model", nargs="?")
    parser.add_argument("--json", action="store_true", help="a line of JSON for each attack")
    arguments = parser.parse_args()
    command = [arguments.duet, "serve", *filter(None, [arguments.model]), "--port", "0", "--history", "off"]
    server = Server(command)
    failed = False
    try:
        for _ in range(5):
            say_hi(server.port)
        alone = statistics.median(say_hi(server.port)[0] for _ in range(15))
        idle = server.resident()
        if not arguments.json:
            print(f"alone a person waits {alone * 1e3:.0f} ms; idle memory {idle / MB:.0f} MB")
        for name, attack in ATTACKS:
            with Watch(server) as watch:
                begun = time.monotonic()
                statuses, allowed = attack(server.port)
                took = time.monotonic() - begun
            is_right = set(statuses) <= allowed and watch.statuses == {200} and server.process.poll() is None
            failed |= not is_right
            counted = {str(status): statuses.count(status) for status in statuses}
            line = {
                "attack": name,
                "answers": counted,
                "right": is_right,
                "took_s": round(took, 2),
                "memory_mb": round((watch.peak - idle) / MB),
                "person_ms": round(statistics.median(watch.waits) * 1e3, 1),
                "person_max_ms": round(max(watch.waits) * 1e3, 1),
                "person_ratio": round(statistics.median(watch.waits) / alone, 2),
                "n": len(watch.waits),
            }
            if arguments.json:
                print(json.dumps(line), flush=True)
            else:
                answers = ", ".join(f"{count} × {status}" for status, count in counted.items())
                print(
                    f"{'ok ' if is_right else 'BAD'} {name}: {answers}; took {line['took_s']} s, +{line['memory_mb']} MB; "
                    f"a person waited {line['person_ms']} ms ({line['person_ratio']} ×), at most {line['person_max_ms']} ms, "
                    f"n {line['n']}",
                    flush=True,
                )
    finally:
        status = server.stop()
    if status != 0:
        print(f"the server ended with status {status}")
    sys.exit(1 if failed or status != 0 else 0)


if __name__ == "__main__":
    main()
