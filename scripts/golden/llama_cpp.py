"""What llama.cpp answers on a real model: greedy continuations and perplexity.

    python llama_cpp.py greedy     --llama DIR --workloads DIR --out FILE NAME=MODEL.gguf ...
    python llama_cpp.py perplexity --llama DIR --corpus FILE --out FILE NAME=MODEL.gguf ...

`greedy` takes 50 prompts from workload files whose licence allows copying, renders them with the
chat template of the first model, tokenises them with llama.cpp and continues each by at most 32
tokens with every model: temperature 0, f16 KV, flash attention as llama.cpp chooses.
Each step keeps its two best tokens, so that a disagreement can be seen to be a near tie.

`perplexity` runs `llama-perplexity` and checks its first chunks against the same figure computed
here from logits, so that the method written into the file is the one that was used.

Needs: jinja2, numpy. `greedy` and the check load libllama.so from DIR.
"""

import argparse
import hashlib
import json
import os
import pathlib
import re
import subprocess
import sys

import numpy as np
from jinja2.sandbox import ImmutableSandboxedEnvironment

import libllama

# Apache-2.0 or MIT sources only: the prompts are copied into the fixture.
PROMPTS = {
    "chat_mtbench": 8, "chat_arena": 8, "chat_oasst": 6, "func_bfcl": 6, "rag_mtrag": 6,
    "ui_droidtask": 6, "coord_misc": 6, "proactive_bench": 4,
}
# Passages of Wikipedia (share-alike) and of unclear licence, inside sets that are Apache-2.0.
TASKS_LEFT_OUT = ("clapnq/", "fiqa/")
PROMPT_MAX = 900
STEPS = 32
CHECKED_CHUNKS = 4


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    for name in ("greedy", "perplexity"):
        command = commands.add_parser(name)
        command.add_argument("--llama", required=True, help="folder of llama.cpp's binaries")
        command.add_argument("--out", required=True, type=pathlib.Path)
        command.add_argument("--threads", type=int, default=2)
        command.add_argument("models", nargs="+", metavar="NAME=MODEL.gguf")
        if name == "greedy":
            command.add_argument("--workloads", required=True, type=pathlib.Path)
        else:
            command.add_argument("--corpus", required=True, type=pathlib.Path)
            command.add_argument("--logs", type=pathlib.Path,
                                 help="folder of llama-perplexity logs, NAME.log, to use instead of running it")
    arguments = parser.parse_args()
    arguments.models = dict(model.split("=", 1) for model in arguments.models)
    record = greedy(arguments) if arguments.command == "greedy" else perplexity(arguments)
    arguments.out.write_text(record)
    print(f"{arguments.out}: {len(record)} bytes")


def greedy(arguments):
    library = libllama.Library(arguments.llama)
    prompts, runs = None, {}
    for name, path in arguments.models.items():
        model = libllama.Model(library, path, n_ctx=1024, threads=arguments.threads)
        if prompts is None:
            prompts = choose(model, arguments.workloads)
        runs[name] = []
        for i, prompt in enumerate(prompts):
            runs[name].append(continuation(model, prompt["tokens"]))
            print(f"\r{name} {i + 1}/{len(prompts)}", end="", file=sys.stderr, flush=True)
        print(file=sys.stderr)
        model.close()
    agreement(runs)
    head = {
        "reference": "llama.cpp on CPU, temperature 0, f16 KV, flash attention auto, "
                     f"prompt in one batch of micro-batches of 512, threads: {arguments.threads}",
        "prompt": "messages rendered with the file's chat template and add_generation_prompt, then "
                  "tokenised with special tokens parsed and no BOS added; tools are not rendered",
        "steps": f"at most {STEPS} per prompt; an end-of-generation token is kept and ends it",
        "top": "per step: best logit, second token, second logit",
        "models": {name: identity(path) for name, path in arguments.models.items()},
    }
    lines = [json.dumps(head)[:-1] + ', "prompts": [']
    for i, prompt in enumerate(prompts):
        prompt["runs"] = {name: runs[name][i] for name in runs}
        lines.append(json.dumps(prompt, ensure_ascii=False, separators=(",", ":"))
                     + ("," if i + 1 < len(prompts) else ""))
    return "\n".join(lines + ["]}"]) + "\n"


def identity(path):
    path = pathlib.Path(path).resolve()
    with path.open("rb") as file:
        return {"file": path.name, "sha256": hashlib.file_digest(file, "sha256").hexdigest()}


def choose(model, folder):
    """From each file, prompts evenly spread over the lengths that fit."""
    # The settings that Hugging Face renders chat templates with.
    environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
    template = environment.from_string(model.chat_template())
    chosen = []
    for stem, count in PROMPTS.items():
        candidates = []
        for line in (folder / f"{stem}.jsonl").read_text().splitlines():
            row = json.loads(line)
            if row["task"].startswith(TASKS_LEFT_OUT):
                continue
            text = template.render(messages=row["messages"], add_generation_prompt=True)
            tokens = model.tokenize(text, add_special=True, parse_special=True)
            if len(tokens) <= PROMPT_MAX:
                candidates.append({"id": row["id"], "source": row["source"],
                                   "messages": row["messages"], "tokens": tokens})
        candidates.sort(key=lambda row: (len(row["tokens"]), row["id"]))
        spread = np.linspace(0, len(candidates) - 1, count).round().astype(int)
        chosen += [candidates[i] for i in spread]
    return chosen


def continuation(model, tokens):
    model.clear()
    generated, top, position, batch = [], [], 0, tokens
    while len(generated) < STEPS:
        logits = np.array(model.logits(batch, position, [len(batch) - 1])[0])
        position += len(batch)
        # A stable order, so that an exact tie goes to the smaller id.
        first, second = np.argsort(-logits, kind="stable")[:2]
        generated.append(int(first))
        top.append([round(float(logits[first]), 4), int(second), round(float(logits[second]), 4)])
        if model.is_end(int(first)):
            break
        batch = [int(first)]
    return {"tokens": generated, "top": top}


def agreement(runs):
    names = list(runs)
    for name in names[1:]:
        same = sum(a["tokens"] == b["tokens"] for a, b in zip(runs[names[0]], runs[name]))
        print(f"{names[0]} and {name}: {same} of {len(runs[name])} continuations equal")
    for name in names:
        margins = [first - second for run in runs[name] for first, _, second in run["top"]]
        print(f"{name}: {len(margins)} steps, margin under 0.1 in {sum(m < 0.1 for m in margins)}, "
              f"under 0.3 in {sum(m < 0.3 for m in margins)}")


def perplexity(arguments):
    library = libllama.Library(arguments.llama)
    text = arguments.corpus.read_text()
    record = {
        "reference": "llama-perplexity -c 512, otherwise default (CPU, f16 KV)",
        "corpus": arguments.corpus.name,
        "method": [
            "Tokenise the whole text once (no BOS: tokenizer.ggml.add_bos_token is false; a model "
            "with add_bos would get one before the text, and its first token of every chunk is "
            "replaced by BOS before evaluation).",
            "Cut the tokens into consecutive chunks of 512; drop the incomplete last one. Each "
            "chunk starts at position 0 with an empty KV cache.",
            "In each chunk the logits at positions 256 to 510 count, each against the next token "
            "(positions 257 to 511): 255 predictions a chunk.",
            "Perplexity is exp of the mean negative log-likelihood (natural logarithm, log-softmax "
            "over the whole vocabulary in f32 or better) over all predictions of all chunks.",
        ],
        "models": {},
    }
    for name, path in arguments.models.items():
        log = run_perplexity(arguments, name, path)
        running = {int(i): float(p) for i, p in re.findall(r"\[(\d+)\]([\d.]+)", log)}
        final = re.search(r"Final estimate: PPL = ([\d.]+) \+/- ([\d.]+)", log)
        chunks = max(running)
        model = libllama.Model(library, path, n_ctx=512, threads=arguments.threads)
        tokens = model.tokenize(text, add_special=True, parse_special=False)
        assert chunks <= len(tokens) // 512, (chunks, len(tokens))
        # A log of a run that was stopped counts as far as it goes.
        assert not final or chunks == len(tokens) // 512, (chunks, len(tokens))
        assert not library.c.llama_vocab_get_add_bos(model.vocab)
        nll = []
        for i in range(CHECKED_CHUNKS):
            chunk = tokens[512 * i : 512 * (i + 1)]
            model.clear()
            for at, logits in zip(range(256, 511), model.logits(chunk, 0, range(256, 511))):
                logits = np.array(logits, dtype=np.float64)
                peak = logits.max()
                nll.append(peak + np.log(np.exp(logits - peak).sum()) - logits[chunk[at + 1]])
            ours, theirs = float(np.exp(np.mean(nll))), running[i + 1]
            print(f"{name}, {i + 1} chunks: {ours:.4f} here, {theirs:.4f} llama-perplexity")
            assert abs(ours / theirs - 1) < 0.005, "the method described is not the one used"
        record["models"][name] = {
            "model": identity(path),
            "tokens": len(tokens),
            "first_tokens": tokens[:16],
            "chunks": chunks,
            "of_chunks": len(tokens) // 512,
            "perplexity": running[chunks],
            **({"standard_error": float(final[2])} if final else {}),
            # Cumulative: the figure over the first so many chunks.
            "after_chunks": {str(n): running[n] for n in (1, 2, 4, 8, 16, 32, 64, 128, 256)
                             if n <= chunks},
        }
        model.close()
    return json.dumps(record, indent=1) + "\n"


def run_perplexity(arguments, name, path):
    if arguments.logs:
        return (arguments.logs / f"{name}.log").read_text()
    result = subprocess.run(
        [os.path.join(arguments.llama, "llama-perplexity"), "-m", path, "-f",
         str(arguments.corpus), "-c", "512", "-t", str(arguments.threads)],
        env={**os.environ, "LD_LIBRARY_PATH": arguments.llama}, check=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    return result.stdout


if __name__ == "__main__":
    main()
