#!/usr/bin/env python3
"""OpenVINO GenAI's continuous batching behind OpenAI's chat route: openvino_server.py MODEL --port N

Just enough of the API for `duet bench load`: POST /v1/chat/completions, streamed; GET /health. One thread steps the
pipeline; one thread per connection waits for its own tokens. A client that goes away has its request stopped.
"""

import argparse
import json
import queue
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import openvino_genai as genai

END = None


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", help="a GGUF file or an OpenVINO model folder")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--batched-tokens", type=int, default=256, help="most tokens of one step")
    parser.add_argument("--cache-gb", type=int, default=2)
    arguments = parser.parse_args()

    Handler.engine = Engine(arguments)
    server = ThreadingHTTPServer(("127.0.0.1", arguments.port), Handler)
    server.daemon_threads = True
    server.serve_forever()


class Engine:
    """The pipeline, and who waits for what of it."""

    def __init__(self, arguments):
        scheduling = genai.SchedulerConfig()
        scheduling.cache_size = arguments.cache_gb
        scheduling.max_num_batched_tokens = arguments.batched_tokens
        scheduling.dynamic_split_fuse = True
        scheduling.enable_prefix_caching = True
        self.pipeline = genai.ContinuousBatchingPipeline(
            arguments.model, scheduling, "CPU", {"INFERENCE_NUM_THREADS": arguments.threads})
        self.tokenizer = self.pipeline.get_tokenizer()
        # Guards the pipeline and `waiting`.
        self.lock = threading.Condition()
        self.waiting = {}
        self.next_id = 0
        threading.Thread(target=self.step_forever, daemon=True).start()

    def submit(self, messages, max_tokens, ignore_eos):
        """Returns the request's id, its prompt's length, and the queue of lists of its tokens."""
        text = self.tokenizer.apply_chat_template(messages, add_generation_prompt=True)
        ids = self.tokenizer.encode(text, add_special_tokens=False).input_ids
        config = genai.GenerationConfig()
        config.max_new_tokens = max_tokens
        config.ignore_eos = ignore_eos
        config.do_sample = False
        if not ignore_eos:
            config.set_eos_token_id(self.tokenizer.get_eos_token_id())
        tokens = queue.SimpleQueue()
        with self.lock:
            self.next_id += 1
            request = self.next_id
            self.waiting[request] = (self.pipeline.add_request(request, ids, config), tokens)
            self.lock.notify()
        return request, ids.shape[1], tokens

    def stop(self, request):
        with self.lock:
            if request in self.waiting:
                handle, _ = self.waiting.pop(request)
                handle.cancel()

    def step_forever(self):
        while True:
            with self.lock:
                while not self.pipeline.has_non_finished_requests():
                    self.hand_out()
                    self.lock.wait()
                self.pipeline.step()
                self.hand_out()

    def hand_out(self):
        for request, (handle, tokens) in list(self.waiting.items()):
            new = []
            while handle.can_read():
                for output in handle.read().values():
                    new.extend(output.generated_ids)
            if new:
                tokens.put(new)
            if handle.get_status() != genai.GenerationStatus.RUNNING:
                tokens.put(END)
                del self.waiting[request]


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    engine = None

    def do_GET(self):
        self.answer(200 if self.path == "/health" else 404, {})

    def do_POST(self):
        if self.path != "/v1/chat/completions":
            self.answer(404, {"error": {"message": "no such route"}})
            return
        try:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            request, prompt, tokens = self.engine.submit(
                body["messages"], body["max_tokens"], body.get("ignore_eos", False))
        except (KeyError, TypeError, ValueError, RuntimeError) as error:
            self.answer(400, {"error": {"message": str(error)}})
            return
        try:
            self.stream(prompt, tokens)
        except OSError:
            pass
        finally:
            # Does nothing if it has ended; if the client has gone, the work ends too.
            self.engine.stop(request)
            self.close_connection = True

    def stream(self, prompt, tokens):
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        ids, shown = [], ""
        while (new := tokens.get()) is not END:
            ids.extend(new)
            text = self.engine.tokenizer.decode(ids)
            # Half a character is held back until its other half has come.
            if text.startswith(shown) and not text.endswith("\ufffd") and text != shown:
                self.event({"choices": [{"index": 0, "delta": {"content": text[len(shown):]}}]})
                shown = text
        usage = {"prompt_tokens": prompt, "completion_tokens": len(ids), "total_tokens": prompt + len(ids)}
        self.event({"choices": [], "usage": usage})
        self.wfile.write(b"data: [DONE]\n\n")

    def event(self, value):
        self.wfile.write(b"data: " + json.dumps(value).encode() + b"\n\n")
        self.wfile.flush()

    def answer(self, status, value):
        text = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *_):
        pass


if __name__ == "__main__":
    main()
