"""Where the answers of two servers part, and how sure each is there.

Two engines round otherwise, so where a model holds two tokens for nearly as likely they choose differently, and go on with
different texts. How many nats are between the two likeliest tokens tells such a tie from an error.
"""

import json
import urllib.request


def parting(urls, way, prompt, most):
    """Of each server: the first token that differs, and its nats above the next likeliest; None if none differs."""
    answers = [list(tokens_of(url, way, prompt, most)) for url in urls]
    for found in zip(*answers):
        if len({token for token, _ in found}) > 1:
            return found
    return None


def tokens_of(url, way, prompt, most):
    """The answer's tokens, each with the nats from the likeliest token to the next."""
    body = {"model": "default", "max_tokens": most, "temperature": 0}
    if way == "chat":
        route = "/v1/chat/completions"
        body |= {"messages": [{"role": "user", "content": prompt}], "logprobs": True, "top_logprobs": 2}
    else:
        route = "/v1/completions"
        body |= {"prompt": prompt, "logprobs": 2}
    request = urllib.request.Request(url + route, json.dumps(body).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=1200) as reply:
        said = json.load(reply)["choices"][0]["logprobs"]
    # llama.cpp's server answers completions, too, in the form that chat has.
    if "content" in said:
        steps = [(step["token"], [other["logprob"] for other in step["top_logprobs"]]) for step in said["content"]]
    else:
        steps = [(token, list(top.values())) for token, top in zip(said["tokens"], said["top_logprobs"])]
    for token, likeliest in steps:
        first, second = sorted(likeliest, reverse=True)[:2]
        yield token, first - second
