#!/usr/bin/env python3
"""What hostile requests cost a server: attack.py DUET [MODEL]

Starts `DUET serve [MODEL]` on a free port of the loopback. Each attack is repeated without a pause for some seconds. For
each it prints how it was answered, how long it took (the median), the server's peak of resident memory above idle, and
how long a person waited for "Say hi." meanwhile, against how long alone (medians). With --json, a line of JSON for each attack instead.

The aims: a person waits at most 1.5 times as long, and memory grows by at most 300 MB. The exit status is 1 if an
attack was answered otherwise than it should be, or if the server died; times are for a reader to judge, since they
depend on what else the machine does.
"""

import argparse
import http.client
import json
import multiprocessing
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


def bodies(make, allowed):
    """An attack that sends some bodies at once: made before the clock starts, they are answered as `allowed`."""
    def prepare():
        made = make()
        return lambda port: at_once(port, made)
    return prepare, allowed


def zeros(size):
    return b"0," * (size // 2) + b"0"


def with_unknown_field():
    return chat("hi", max_tokens=4)[:-1] + b', "x": [' + zeros(9_800_000) + b"]}"


def with_nested_values():
    return b'{"messages": [{"role": "user", "content": "hi", "x": [' + zeros(9_800_000) + b"]}]}"


def with_prediction():
    return chat("hi", prediction={"type": "content", "content": "word " * 1_900_000})


def with_many_messages():
    return json.dumps({"messages": [{"role": "user", "content": ""}] * 250_000}).encode()


def slow_senders(port):
    """Connections that send one byte; whether they are gone after their time is out."""
    sockets = []
    for _ in range(900):
        sender = socket.create_connection(("127.0.0.1", port), timeout=60)
        sender.sendall(b"P")
        sockets.append(sender)
    # Their time is 30 seconds.
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
    return [f"{gone} of {len(sockets)} closed"]


# What an attack is called, what prepares it, and how it may be answered. "Nearly fit" are read furthest before they are
# refused.
ATTACKS = [
    ("six bodies of 9.8 MB with an unknown field", bodies(lambda: [with_unknown_field()] * 6, {200, 429})),
    ("six bodies of 9.8 MB with a nested unknown field", bodies(lambda: [with_nested_values()] * 6, {413, 429})),
    ("six predictions of 9.5 MB", bodies(lambda: [with_prediction()] * 6, {400, 429})),
    ("eight prompts of 9.5 MB", bodies(lambda: [chat("word " * 1_900_000)] * 8, {400, 429})),
    ("eight words of 9.5 MB", bodies(lambda: [chat(" " * 9_500_000 + "x")] * 4 + [chat("a" * 9_500_000)] * 4, {400, 429})),
    ("eight words of 100 kB", bodies(lambda: [chat("a" * 100_000)] * 8, {200, 400, 429})),
    ("sixteen prompts that nearly fit", bodies(lambda: [chat("a b c d e f g h " * 2_000)] * 16, {200, 400, 429})),
    ("four times 250,000 messages", bodies(lambda: [with_many_messages()] * 4, {400, 413, 429})),
    ("temperature 1e-39", bodies(lambda: [chat("hi", temperature=1e-39, max_tokens=8)], {200})),
    ("sixteen stop strings of 400 kB", bodies(lambda: [chat("hi", stop=["a" * 400_000] * 16)], {400})),
    ("900 connections that send one byte", (lambda: slow_senders, {"900 of 900 closed"})),
]


def ask_again_and_again(port, ended, results):
    """A person, as a process of its own: what the attack costs its sender is not to be counted."""
    # At least once, however short the attack is.
    while True:
        results.put(say_hi(port))
        if ended.wait(0.02):
            return


class Watch:
    """Asks for "Say hi." again and again, and looks at the server's memory, while an attack goes on."""

    def __init__(self, server):
        self.server = server
        self.waits, self.statuses, self.peak = [], set(), server.resident()
        self.ended, self.results = multiprocessing.Event(), multiprocessing.SimpleQueue()
        self.person = multiprocessing.Process(target=ask_again_and_again, args=(server.port, self.ended, self.results))
        self.looker = threading.Thread(target=self.look)

    def __enter__(self):
        self.person.start()
        self.looker.start()
        # The attack begins when the person is there.
        self.take()
        return self

    def __exit__(self, *_):
        self.ended.set()
        self.person.join()
        self.looker.join()
        while not self.results.empty():
            self.take()

    def take(self):
        wait, status = self.results.get()
        self.waits.append(wait)
        self.statuses.add(status)

    def look(self):
        while not self.ended.wait(0.005):
            self.peak = max(self.peak, self.server.resident())


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("duet")
    parser.add_argument("model", nargs="?")
    parser.add_argument("--seconds", type=float, default=3, help="repeat each attack for so long (default: 3)")
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
        for name, (prepare, allowed) in ATTACKS:
            attack = prepare()
            with Watch(server) as watch:
                # The first wait was from before it.
                watch.waits.clear()
                begun = time.monotonic()
                statuses, rounds = [], []
                while not rounds or time.monotonic() - begun < arguments.seconds:
                    round_begun = time.monotonic()
                    statuses += attack(server.port)
                    rounds.append(time.monotonic() - round_begun)
                took = statistics.median(rounds)
            is_right = set(statuses) <= allowed and watch.statuses == {200} and server.process.poll() is None
            failed |= not is_right
            counted = {str(status): statuses.count(status) for status in statuses}
            line = {
                "attack": name,
                "answers": counted,
                "right": is_right,
                "rounds": len(rounds),
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
