"""What transformers makes of some texts with the real weights of an encoder.

    python real_encoders.py MODEL_DIR FILE_STEM OUT.json

MODEL_DIR is a model of sentence-transformers. OUT has for each text its tokens and its vector, in f32 with eager attention,
pooled as the model says and at a length of 1; `FILE_STEM-f16.gguf` and so on are the files that tests compare with it.

Needs: torch, transformers, tokenizers, numpy.
"""

import json
import pathlib
import sys

import torch
import transformers
from tokenizers import Tokenizer

import encoder_file

TEXTS = [
    "hello", "How do I bake bread?", "Mix flour, water, salt and yeast, let it rise, and bake it for forty minutes.",
    "The stock market fell sharply on Tuesday.", "fn main() { println!(\"{}\", 1 + 1); }",
    "Ein Satz auf Deutsch mit Umlauten: Äpfel, Öl, Übermut.", "日本語の文章です。", "Привет, как дела?", "😀 🎉",
    "The quick brown fox jumps over the lazy dog. " * 8,
    "Alice was beginning to get very tired of sitting by her sister on the bank, and of having nothing to do: once or twice "
    "she had peeped into the book her sister was reading, but it had no pictures or conversations in it. " * 4,
    "word " * 500,
]


def main():
    folder, stem, out = pathlib.Path(sys.argv[1]), sys.argv[2], sys.argv[3]
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.no_padding()
    tokenizer.no_truncation()
    model = transformers.BertModel.from_pretrained(folder, attn_implementation="eager").eval()
    pooling = encoder_file.pooling_of(folder)
    texts = []
    for text in TEXTS:
        ids = tokenizer.encode(text).ids
        with torch.no_grad():
            rows = model(torch.tensor([ids])).last_hidden_state[0].double()
        vector = rows.mean(0) if pooling == "mean" else rows[0]
        vector = [float(f"{x:.7g}") for x in (vector / vector.norm()).tolist()]
        texts.append({"text": text, "tokens": ids, "vector": vector})
    made = {"script": "scripts/golden/real_encoders.py", "file": stem,
            "reference": f"transformers {transformers.__version__}, f32, eager attention", "texts": texts}
    pathlib.Path(out).write_text(json.dumps(made) + "\n")


if __name__ == "__main__":
    main()
