"""What scripts/test-schemathesis.sh lets Schemathesis ask: short answers.

A small model in a debug build says some hundred tokens a second, so wherever a request may say how long an answer is or how
many there are, it says one. What is no valid number stays, so that it is seen to be refused.
"""

import schemathesis

LENGTHS = ("max_tokens", "max_completion_tokens", "max_output_tokens", "n")


@schemathesis.hook
def map_body(context, body):
    if isinstance(body, dict):
        if isinstance(body.get("options"), dict) and type(body["options"].get("num_predict")) is int:
            body["options"]["num_predict"] = 1
        for name in LENGTHS:
            if type(body.get(name)) is int and body[name] > 1:
                body[name] = 1
    return body
