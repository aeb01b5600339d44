#!/usr/bin/env python3
"""What llama.cpp says of models of users' sizes, for crates/model/tests/real_models.

    real_model_answers.py --llama DIR --models DIR [--chunks N] [NAME ...]

The folders are that of llama.cpp's libraries (`scripts/peers/install.sh` makes one) and that of
`scripts/real_models.py`; the names are that script's. For each model a file is written into
crates/model/tests/fixtures/real_models:

- `tokenizer`: the ids of texts, and digests of the ids of more and longer ones,
- `perplexity`: over the first chunks of wonderland.txt, as llama-perplexity computes it,
- `chat`: whether the file has a chat template,
- `greedy`: 20 prompts, by that template if there is one, and their continuations by at most 48 tokens at
  temperature 0, with the second token of each step and by how much the first one led it, so that a
  disagreement can be seen to be a near tie.

Needs: jinja2, numpy.
"""

import argparse
import json
import pathlib
import sys

import numpy as np
from jinja2.sandbox import ImmutableSandboxedEnvironment

import libllama
import tokenizer

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
FIXTURES = ROOT / "crates/model/tests/fixtures"
sys.path.append(str(ROOT / "scripts"))
import real_models  # noqa: E402

CHUNK = 512
STEPS = 48

# Texts whose ids are written down; of those in tokenizer.py there are digests.
SHOWN = [
    "Hello, world!",
    "  two spaces,\n\n\ttabs and   more\r\n",
    "def f(x):\n    return x ** 2  # 1234567890\n",
    "I'm sure they'll say it's HTTPServer's fault, won't they?",
    "Grüße aus Zürich — «naïve» café №5",
    "你好，世界！今天天气很好。こんにちは 안녕하세요",
    "Привет, мир! שלום مرحبا नमस्ते",
    "😀👨‍👩‍👧‍👦 🇨🇭 \u200d\ufeff\u0301",
    "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n",
    "<start_of_turn>user\nHi<end_of_turn>\n<start_of_turn>model\n",
    "<|endoftext|><bos><eos><|fim_prefix|><unused7>",
]

PROMPTS = [
    "What is the capital of France?",
    "Name the planets of the solar system in order.",
    "Write a function in Python that tells whether a number is prime.",
    "Explain in two sentences how a bicycle stays upright.",
    "Translate into German: The train to Basel leaves at nine.",
    "What is 17 times 23? Show each step.",
    "Write a haiku about the sea in winter.",
    "Give three reasons to learn to cook.",
    "Reverse a linked list in C.",
    "Summarise: The harbour was closed on Monday after a storm damaged the northern pier. Ferries to the islands were "
    "cancelled, and repairs will take two weeks.",
    "Which is heavier, a kilogram of feathers or a kilogram of iron, and why?",
    "Write an SQL query that lists the ten customers who spent most.",
    "What does HTTP status 404 mean?",
    "Continue the story: The lighthouse keeper had not spoken to anyone since",
    "List the ingredients of a simple tomato soup.",
    "Erkläre kurz, was ein Regenbogen ist.",
    "Escribe una frase sobre la luna.",
    "What is wrong with this Rust code?\n\nfn main() {\n    let s = String::from(\"a\");\n    let t = s;\n"
    "    println!(\"{s}\");\n}",
    "Return JSON with the fields name and age for a fictional person.",
    "Write a regular expression that matches a date such as 2024-05-31, and explain it.",
]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--llama", required=True, help="folder of llama.cpp's libraries")
    parser.add_argument("--models", required=True, type=pathlib.Path, help="folder of the models")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--chunks", type=int, default=16, help="of the text whose perplexity is computed")
    parser.add_argument("names", nargs="*", metavar="NAME")
    arguments = parser.parse_args()
    library = libllama.Library(arguments.llama)
    for name in arguments.names or real_models.MODELS:
        file, digest = real_models.MODELS[name][:2]
        model = libllama.Model(library, arguments.models / file, n_ctx=1024, threads=arguments.threads)
        record = {
            "reference": "llama.cpp on CPU, f16 KV, flash attention auto",
            "file": file,
            "sha256": digest,
            "chat": model.chat_template() is not None,
            "tokenizer": tokens_of_texts(model),
            "perplexity": perplexity(model, arguments.chunks),
            "greedy": [greedy(model, prompt) for prompt in PROMPTS],
        }
        model.close()
        write(FIXTURES / "real_models" / f"{name}.json", record)


def write(path, record):
    """A line for each case, so that a diff shows which one changed."""
    path.parent.mkdir(exist_ok=True)
    text = json.dumps(record, separators=(",", ":"))
    text = text.replace('{"text":', '\n{"text":').replace('{"prompt":', '\n{"prompt":').replace('],"', '],\n"')
    path.write_text(text + "\n")
    print(path.relative_to(ROOT), len(text), "bytes", flush=True)


def tokens_of_texts(model):
    def ids(text, parse_special):
        return model.tokenize(text, add_special=False, parse_special=parse_special)

    def digest(text):
        return [{"count": len(found), "fnv": tokenizer.fnv(found)} for found in (ids(text, False), ids(text, True))]

    wonderland = (FIXTURES / "wonderland.txt").read_text()
    return {
        "vocabulary": model.n_vocab,
        "shown": [{"text": text, "ids": ids(text, False), "parsed": ids(text, True)} for text in SHOWN],
        "texts": [digest(text) for text in tokenizer.TEXTS],
        "fuzz": digest(tokenizer.fuzz_text()),
        "wonderland": digest(wonderland),
    }


def perplexity(model, chunks):
    """After each power of two of chunks of 512 tokens; the second half of each is scored, as llama-perplexity does it."""
    tokens = model.tokenize((FIXTURES / "wonderland.txt").read_text(), add_special=True, parse_special=False)
    losses, after = [], {}
    for number in range(1, chunks + 1):
        chunk = tokens[CHUNK * (number - 1) : CHUNK * number]
        if model.bos() is not None:
            chunk[0] = model.bos()
        model.clear()
        scored = range(CHUNK // 2, CHUNK - 1)
        for at, logits in zip(scored, model.logits(chunk, 0, scored)):
            logits = np.array(logits, dtype=np.float64)
            peak = logits.max()
            losses.append(peak + np.log(np.exp(logits - peak).sum()) - logits[chunk[at + 1]])
        if number & (number - 1) == 0:
            after[number] = round(float(np.exp(np.mean(losses))), 5)
            print(f"{number} chunks: {after[number]}", file=sys.stderr, flush=True)
    return after


def prompt_tokens(model, prompt):
    """As a user's message, or as it is if the file has no template."""
    if model.chat_template() is None:
        return model.tokenize(prompt, add_special=True, parse_special=True)
    # The settings that Hugging Face renders chat templates with.
    environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
    begin = "" if model.bos() is None else model.text(model.bos())
    text = environment.from_string(model.chat_template()).render(
        messages=[{"role": "user", "content": prompt}], add_generation_prompt=True, bos_token=begin)
    # A template that writes the first token itself gets no other.
    begun = bool(begin) and text.startswith(begin)
    return model.tokenize(text, add_special=not begun, parse_special=True)


def greedy(model, prompt):
    tokens = prompt_tokens(model, prompt)
    model.clear()
    generated, second, lead, position, batch = [], [], [], 0, tokens
    while len(generated) < STEPS:
        logits = np.array(model.logits(batch, position, [len(batch) - 1])[0])
        position += len(batch)
        # A stable order, so that an exact tie goes to the smaller id.
        best, next_best = np.argsort(-logits, kind="stable")[:2]
        generated.append(int(best))
        second.append(int(next_best))
        lead.append(round(float(logits[best] - logits[next_best]), 3))
        if model.is_end(int(best)):
            break
        batch = [int(best)]
    print(".", end="", file=sys.stderr, flush=True)
    return {"prompt": prompt, "tokens": tokens, "continuation": generated, "second": second, "lead": lead}


if __name__ == "__main__":
    main()
