"""Conversations over long texts in which numbers are hidden, after the needle tasks of NVIDIA's RULER.

A conversation is a few questions, each with what its answer has to name. The same text, length and seed give the same
conversation.
"""

import dataclasses
import json
import random
import re

ADJECTIVES = "amber brave calm dusty eager faint gentle hollow icy jolly keen lazy mellow narrow odd proud".split()
NOUNS = (
    "anchor bridge candle desert engine feather garden harbour island jacket kettle ladder meadow needle orchard"
).split()
ASKED = 3
# Of a text with many numbers: one for each key, and only some are asked for.
MANY = 24
# Depths of those that are asked for, as shares of the text.
DEPTHS = [0.1, 0.5, 0.9]
SENTENCE = re.compile(r"[^.!?]*[.!?]+\s*")


@dataclasses.dataclass
class Conversation:
    """What is asked turn by turn, and what each answer has to name."""

    name: str
    questions: list
    references: list


def over(text, length, kind, seed, count):
    """A conversation of nearly `length` tokens over `text`, as `count` counts them; `kind` is `needle` or `keys`."""
    chance = random.Random(f"{kind} {length} {seed}")
    pairs = chance.sample([f"{adjective} {noun}" for adjective in ADJECTIVES for noun in NOUNS], MANY)
    keys = pairs[: ASKED if kind == "needle" else MANY]
    numbers = {key: str(chance.randrange(1_000_000, 10_000_000)) for key in keys}
    asked = list(numbers)[:ASKED]
    depths = dict(zip(asked, DEPTHS)) | {key: chance.random() for key in list(numbers)[ASKED:]}
    hidden = [(depths[key], f"The special number for {key} is {number}. ") for key, number in numbers.items()]
    around = length - count(" ".join(sentence for _, sentence in hidden)) - ROOM
    hay = filler(text, around, chance, count)
    for depth, sentence in sorted(hidden, reverse=True):
        hay.insert(int(depth * len(hay)), sentence)
    questions = [f"Which is the special number for {key} in the text? Answer with the number alone." for key in asked]
    questions[0] = f"Special numbers are hidden in this text.\n\n{''.join(hay)}\n\n{questions[0]}"
    return Conversation(f"{kind} {length}", questions, [numbers[key] for key in asked])


def filler(text, tokens, chance, count):
    """Sentences that follow each other somewhere in the text, of nearly so many tokens."""
    sample = text[: len(text) // 10]
    letters = int(tokens * len(sample) / count(sample))
    start = chance.randrange(max(1, len(text) - 2 * letters))
    sentences = SENTENCE.findall(text[start : start + 2 * letters])[1:]
    # Passages differ in how many letters a token has.
    while count("".join(sentences)) > tokens:
        sentences = sentences[: len(sentences) * 49 // 50]
    return sentences


def of_workload(path, most):
    """The first items of a workload file, each asked to be said again twice."""
    for line in path.read_text(encoding="utf-8").splitlines()[:most]:
        item = json.loads(line)
        questions = [item["messages"][-1]["content"], AGAIN, AGAIN]
        yield Conversation(item["task"], questions, [item["reference"]] * len(questions))


def right(reference, answer):
    """The share of the reference's parts that the answer names."""
    parts = reference.lower().split(", ")
    return sum(part in answer.lower() for part in parts) / len(parts)


AGAIN = "Say that again, the same words alone."
# Tokens for the questions, the answers and what the chat's template adds.
ROOM = 300
