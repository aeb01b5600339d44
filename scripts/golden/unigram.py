"""Unigram ids of varied texts, by `sentencepiece`, `tokenizers` and llama.cpp.

    python unigram.py OUT.json --llama-tokenize BIN

Trains a small vocabulary on the texts of `word_pieces.py` and of `tokenizer.py`, with some rules of normalisation of the kinds
that XLM-R's have (the whole of them would be 250 KB), and lays it out as llama.cpp's converter does for XLM-R. The ids are those
on which two of the three agree: the `sentencepiece` library, `tokenizers` with the parts that XLM-R's `tokenizer.json` has, and
llama.cpp (its folder in LD_LIBRARY_PATH).

Needs: sentencepiece, tokenizers, gguf.
"""

import argparse
import base64
import io
import json
import pathlib
import tempfile

import sentencepiece
import tokenizers
from sentencepiece import sentencepiece_model_pb2
from tokenizers import models, normalizers, pre_tokenizers

import tokenizer as byte_pairs
import word_pieces

NORMAL, UNKNOWN, CONTROL = 1, 2, 3

# What NFKC and SentencePiece's own rules do, for some characters: spaces, what has no width, ligatures, full width, signs of
# several letters, letters and their accents.
RULES = {
    **{space: " " for space in "\t\n\x0b\x0c\r\x85\xa0\u1680\u2028\u2029\u202f\u205f\u3000"},
    **{chr(space): " " for space in range(0x2000, 0x200B)}, **{chr(control): "" for control in range(1, 9)}, "\u200b": "", "\u00ad": "", "\ufeff": "",
    "\u200d": "", "ﬁ": "fi", "ﬀ": "ff", "½": "1/2", "①": "1", "②": "2", "…": "...", "™": "TM", "ﷺ": "صلى الله عليه وسلم",
    "e\u0301": "é", "n\u0303": "ñ", "a\u0308": "ä", "A\u030a": "\u00c5", "ｶﾞ": "ガ", "ｶ": "カ",
    **{chr(0xFF01 + i): chr(0x21 + i) for i in range(94)},
}


def texts():
    made = word_pieces.TEXTS + byte_pairs.TEXTS + list(word_pieces.random_texts(120))
    # Zeros end a text for the library.
    return [text for text in made if "\0" not in text and "\ufffd" not in text]


def train(all_texts):
    prose = pathlib.Path(__file__).parents[2] / "crates/model/tests/fixtures/wonderland.txt"
    lines = prose.read_text().splitlines() + [line for text in all_texts * 3 for line in text.splitlines()]
    with tempfile.NamedTemporaryFile("w", suffix=".tsv") as rules:
        codes = lambda text: " ".join(f"{ord(c):X}" for c in text)
        rules.write("".join(f"{codes(a)}\t{codes(b)}\n" for a, b in RULES.items()))
        rules.flush()
        model = io.BytesIO()
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter([line for line in lines if line.strip()]), model_writer=model, vocab_size=1200,
            model_type="unigram", normalization_rule_tsv=rules.name, character_coverage=0.98, minloglevel=2,
            num_threads=1)
    return model.getvalue()


def laid_out(model):
    """Tokens, scores and kinds in XLM-R's order."""
    pieces = sentencepiece.SentencePieceProcessor(model_proto=model)
    ids = range(3, pieces.vocab_size())
    tokens = ["<s>", "<pad>", "</s>", "<unk>", *map(pieces.id_to_piece, ids), "<mask>"]
    scores = [0.0] * 4 + [pieces.get_score(index) for index in ids] + [0.0]
    return pieces, tokens, scores, [CONTROL] * 3 + [UNKNOWN] + [NORMAL] * len(ids) + [CONTROL]


def by_tokenizers(tokens, scores, charsmap):
    made = tokenizers.Tokenizer(models.Unigram(list(zip(tokens, scores)), unk_id=3, byte_fallback=False))
    made.normalizer = normalizers.Sequence([
        normalizers.Precompiled(charsmap), normalizers.Replace(tokenizers.Regex(" {2,}"), " ")])
    made.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace(prepend_scheme="always")])
    return made


def write_gguf(path, tokens, scores, kinds, charsmap):
    spec = {"tokens": tokens, "scores": scores, "types": kinds, "bos": 0, "eos": 2, "unknown": 3}
    more = lambda writer: writer.add_precompiled_charsmap(charsmap)
    byte_pairs.write_gguf(path, spec, "t5", more=more, add_space_prefix=True, remove_extra_whitespaces=True)


def agreed(text, *by):
    """What two of the three say. `sentencepiece` adds scores in single precision, `tokenizers` normalises letters with their
    accents as wholes."""
    for name, ids in zip(("sentencepiece", "tokenizers", "llama.cpp"), by):
        others = [other for other in by if other is not ids]
        if ids not in others:
            print(f"{name} alone reads {text[:40]!r} so")
    agreed = [ids for ids in by if sum(ids == other for other in by) > 1]
    if not agreed:
        print(f"left out: {text[:40]!r}")
    return {"text": text, "ids": agreed[0]} if agreed else None


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--llama-tokenize", required=True)
    arguments = parser.parse_args()
    all_texts = texts()
    model = train(all_texts)
    pieces, tokens, scores, kinds = laid_out(model)
    proto = sentencepiece_model_pb2.ModelProto()
    proto.ParseFromString(model)
    charsmap = proto.normalizer_spec.precompiled_charsmap
    # XLM-R's ids are one more than SentencePiece's, whose unknown is 0.
    ids = lambda text: [3 if index == 0 else index + 1 for index in pieces.encode(text)]
    library = by_tokenizers(tokens, scores, charsmap)
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "unigram.gguf"
        write_gguf(path, tokens, scores, kinds, charsmap)
        reference = byte_pairs.Reference(arguments.llama_tokenize, path)
        cases = [case for text in all_texts
                 if (case := agreed(text, ids(text), library.encode(text, add_special_tokens=False).ids, reference.ids(text)))]
    made = {"script": "scripts/golden/unigram.py", "reference": f"two of sentencepiece {sentencepiece.__version__}, tokenizers {tokenizers.__version__} and llama.cpp", "tokens": tokens,
            "scores": [float(f"{score:.7g}") for score in scores], "types": kinds,
            "charsmap": base64.b64encode(charsmap).decode(), "cases": cases}
    arguments.out.write_text(json.dumps(made, separators=(",", ":")) + "\n")
    print(arguments.out, arguments.out.stat().st_size, "bytes")


if __name__ == "__main__":
    main()
