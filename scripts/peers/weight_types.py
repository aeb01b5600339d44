#!/usr/bin/env python3
"""What duet and llama.cpp lose of a model in each type of weights.

    weight_types.py --llama DIR --model FILE --text FILE --work DIR [--duet BINARY] [--types TYPES]
                    [--context 512] [--chunks 1] [--threads 2]

For each type, llama.cpp makes a file of the model whose matrices all have that type, `duet bench
quality --write-base` reads that file in plain floats, nothing rounded, and both programs are held
against what that says: the mean divergence of the next token's chances, in nats, and how often the
likeliest token is the same. Both keep keys and values in half precision. A file is made of another
file's weights, so it tells what programs lose of it, and nothing of how good a type is.

DIR is the folder of libllama.so. WORK gets one file at a time, of up to four bytes a weight; what
was measured stays there as TYPE.json, and is not measured again. Lines of the table go to stdout.
Needs numpy.
"""

import argparse
import json
import pathlib
import subprocess
import sys

import numpy as np

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1] / "golden"))
import libllama  # noqa: E402

# What a chance must be for its loss to count, and as llama.cpp's tool has it: `e` to this.
IMPOSSIBLE = -16.0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--llama", required=True, help="folder of libllama.so")
    parser.add_argument("--model", required=True, type=pathlib.Path)
    parser.add_argument("--text", required=True, type=pathlib.Path)
    parser.add_argument("--work", required=True, type=pathlib.Path)
    parser.add_argument("--duet", default="duet")
    parser.add_argument("--types", default=",".join(libllama.FILE_TYPES), help="between commas; all by default")
    parser.add_argument("--context", type=int, default=512)
    parser.add_argument("--chunks", type=int, default=1)
    parser.add_argument("--threads", type=int, default=2)
    asked = parser.parse_args()
    asked.work.mkdir(parents=True, exist_ok=True)
    library = libllama.Library(asked.llama)
    print("| weights | duet | llama.cpp | times | same likeliest, duet | llama.cpp | perplexity, exact |")
    print("| --- | ---: | ---: | ---: | ---: | ---: | ---: |")
    for kind in asked.types.split(","):
        kept = asked.work / f"{kind}.json"
        if not kept.exists():
            kept.write_text(json.dumps(measured(kind, library, asked)))
        print(row(kind, json.loads(kept.read_text())), flush=True)


def measured(kind, library, asked):
    """What both lose of the model in one type. The file is gone afterwards."""
    file, base = asked.work / f"{kind}.gguf", asked.work / f"{kind}.kld"
    try:
        library.quantize(asked.model, file, kind, asked.threads)
        text = ["--text", asked.text, "--context", str(asked.context), "--chunks", str(asked.chunks)]
        quality(asked, file, *text, "--write-base", base)
        # Against the file as llama.cpp is, whose chances have 16 bits.
        duet = quality(asked, file, "--base", base, "--kv", "f16")
        return {"duet": duet, "llama.cpp": by_llama_cpp(library, file, base, asked.threads)}
    finally:
        file.unlink(missing_ok=True)
        base.unlink(missing_ok=True)


def quality(asked, file, *options):
    command = [asked.duet, "bench", "quality", file, "--threads", str(asked.threads), "--json", *options]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE)
    return json.loads(done.stdout)


def by_llama_cpp(library, file, base, threads):
    """What `llama-perplexity --kl-divergence` says, under the names that `duet bench quality` has for it."""
    with base.open("rb") as data:
        context, vocabulary, chunks = header(data)
        model = libllama.Model(library, file, n_ctx=context, threads=threads)
        assert vocabulary == model.n_vocab, "the file is of another model"
        divergences, same = [], []
        for tokens in chunks:
            if (bos := model.bos()) is not None:
                tokens = [bos, *tokens[1:]]
            model.clear()
            for logits in model.logits(tokens, 0, range(context // 2, context - 1)):
                expected = next_row(data, vocabulary)
                found = log_softmax(np.array(logits, np.float64))
                counted = expected >= IMPOSSIBLE
                lost = np.exp(expected[counted]) * (expected[counted] - found[counted])
                divergences.append(lost.sum())
                same.append(found.argmax() == expected.argmax())
        model.close()
    return {"kld_mean": np.mean(divergences), "kld_p99": np.quantile(divergences, 0.99),
            "kld_max": np.max(divergences), "same_top": np.mean(same), "n": len(same)}


def header(data):
    """The context, the vocabulary, and the tokens of each chunk."""
    assert data.read(8) == b"_logits_", "this is no reference file"
    context, vocabulary, count = np.frombuffer(data.read(12), "<i4").tolist()
    tokens = np.frombuffer(data.read(4 * context * count), "<i4").reshape(count, context)
    return context, vocabulary, tokens.tolist()


def next_row(data, vocabulary):
    """The logarithms of the next row's chances."""
    step, least = np.frombuffer(data.read(8), "<f4")
    steps = np.frombuffer(data.read(2 * (vocabulary + vocabulary % 2)), "<u2")[:vocabulary]
    return (step * steps.astype(np.float32) + least).astype(np.float64)


def log_softmax(logits):
    moved = logits - logits.max()
    return moved - np.log(np.exp(moved).sum())


def row(kind, found):
    duet, other = found["duet"], found["llama.cpp"]
    cells = [kind, f"{duet['kld_mean']:.6f}", f"{other['kld_mean']:.6f}",
             f"{duet['kld_mean'] / other['kld_mean']:.2f}", f"{100 * duet['same_top']:.1f} %",
             f"{100 * other['same_top']:.1f} %", f"{duet['base_perplexity']:.2f}"]
    return "| " + " | ".join(cells) + " |"


if __name__ == "__main__":
    main()
