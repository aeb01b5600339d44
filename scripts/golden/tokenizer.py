#!/usr/bin/env python3
"""Golden token ids from llama.cpp, for crates/model/tests/tokenizer_*.rs.

    tokenizer.py model --llama-tokenize BIN --model GGUF --corpus TEXT --out crates/model/tests/fixtures/tokenizer_smollm.json
    tokenizer.py small --llama-tokenize BIN --text TEXT --out crates/model/tests/fixtures

`model` asks a real model's vocabulary. `small` trains vocabularies of about a thousand tokens, writes them as GGUF files
without weights, and asks those under every splitting that duet knows; the vocabulary itself is part of the fixture.

Needs: pip install gguf tokenizers sentencepiece numpy, and llama-tokenize of llama.cpp (its folder in LD_LIBRARY_PATH).
"""
import argparse
import json
import random
import subprocess
import tempfile
from pathlib import Path

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = 1, 2, 3, 4, 5, 6

TEXTS = [
    "",
    " ",
    "  ",
    "\n",
    "\n\n",
    " \n",
    "\t",
    "Hello, world!",
    " Hello",
    "  Hello   world  ",
    "Hello\nworld\n\n\n  indented\n\t\ttabs\n",
    "a\r\nb\r\n\r\nc\rd",
    "x  \n  \n  y",
    " \t \n \r\n  z",
    "I'm you're he's we've they'll I'd don't 'tis 'S 'Re 'LL'd ''s 'x",
    "I’m you’re (typographic)",
    "0 1 12 123 1234 12345 1234567890 3.14159 1,000,000 2024-01-02 v1.2.3",
    "١٢٣ ४५६ ½ ² Ⅷ 一二三 ٣٫١٤",
    "price: $5.00 +3% <=> ^_^ `code` ~tilde~ |pipe|",
    "CamelCase camelCase HTTPServer XMLHttpRequest iPhone ABCdef ÉCOLE Éclair éCOLE ПРИВЕТ Привет",
    "snake_case kebab-case path/to/file.rs C:\\dir https://example.com/?q=1&r=2#frag",
    "fn main() {\n    let x = vec![1, 2, 3];\n    println!(\"{:?}\", x);\n}\n",
    "def f(x):\n\tif x:\n\t\treturn {'a': [1,2]}  # done\n",
    "e\u0301 vs \u00e9, a\u0300\u0316\u0301 stacked, n\u0303",
    "नमस्ते दुनिया हिन्दी ก็ไม่ดี",
    "\u0301leading mark \u0301\u0301",
    "你好，世界！今天天气很好。",
    "こんにちは世界 カタカナ ﾊﾝｶｸ",
    "안녕하세요 세계",
    "مرحبا بالعالم ١٢٣",
    "שלום עולם",
    "mixed: hello שלום 你好 world",
    "😀😃 👨‍👩‍👧‍👦 🏳️‍🌈 👍🏽 🇺🇦🇨🇭",
    "zero\u200bwidth\u200djoiner\u2060word\ufeffbom",
    "no\u00a0break\u2003em\u3000ideographic\u2028line\u2029par\u0085next",
    "nul\x00in\x00side",
    "control \x01\x02\x1b[0m\x7f",
    "lone surrogates are replaced: \ufffd\ufffd",
    "private \ue000 unassigned \u0378 max \U0010ffff",
    "𝕳𝖊𝖑𝖑𝖔 𐍈 𓀀",
    "ſ long s: 'ſ Kelvin: K",
    "\u2581already\u2581spelled \u2581",
    "ĠaĊ is the byte alphabet itself",
    "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n",
    "<|im_start|><|im_start|>  <|im_end|>",
    "<|im_end|",
    "<|im_start",
    "<|endoftext|>x<|endoftext|>",
    "text<s>with</s><unk>tokens<pad>",
    "<0x0A><0x41>",
    "<tool_call>{\"a\": 1}</tool_call>",
    "<|a|><|b|> <|a|> |><| <|b|>",
    "...!!!???;;;:::---===***",
    "!!!\n\n///\n/\r\n",
    "a" * 70,
    " " * 70,
    "\n" * 20 + "x",
    "=" * 40,
    "1" * 25,
    "ab" * 40 + "!",
    "the the the quick brown fox jumps over the lazy dog. " * 3,
    "«guillemets» „low“ — dash – en … ellipsis",
    "x²+y³=z⁴ ∑∫∂ ≤≥≠ →←",
    "A\u030aB\u0327 Ａｆｕｌｌ１２３",
]

FRAGMENTS = [
    " ", "  ", "    ", "\n", "\n\n", "\r\n", "\t", "\u00a0", "\u3000", "\u0085", "\u2028",
    "a", "the", "hello", "World", "HTTP", "camelCase", "é", "É", "ß", "ПРИВЕТ", "привет", "ａ", "ǅ",
    "'s", "'S", "'t", "'re", "'LL", "'", "’s", "''",
    "1", "22", "333", "4444", "٣", "½", "Ⅷ", "²",
    ".", ",", "!", "?!", "...", "-", "--", "/", "//", "\\", "_", "$", "+", "<", "=", ">", "^", "~", "|", "`", "€", "©",
    "\u0301", "\u0308", "क", "ि", "็", "你", "好", "，", "。", "か", "カ", "ﾊ", "안", "م", "ש",
    "😀", "👍🏽", "\u200d", "\ufe0f", "\u200b", "\ufeff", "\x00", "\x1b", "\x7f", "\ue000", "\ufffd", "\u2581", "Ġ",
]

# Byte-pair splittings whose ids the small fixture holds in full; of the others it holds a hash of the ids of the fuzz text.
SHOWN = ["default", "gpt-2", "smollm", "llama-bpe", "qwen2", "tekken"]
HASHED = [
    "falcon", "starcoder", "command-r", "phi-2", "mpt", "olmo", "llama3", "falcon3", "lfm2", "dbrx", "glm4", "chatglm-bpe",
    "deepseek-r1-qwen", "stablelm2", "megrez", "qwen35", "seed-coder", "ufakzeka", "laguna", "bailingmoe", "minicpm5",
    "gpt-4o", "llama4", "exaone4", "refact", "minerva-7b",
]


def fnv(ids):
    """FNV-1a, 64 bits, over the ids as little-endian 32-bit numbers."""
    value = 0xCBF29CE484222325
    for token in ids:
        for byte in token.to_bytes(4, "little"):
            value = ((value ^ byte) * 0x100000001B3) & 0xFFFFFFFFFFFFFFFF
    return f"{value:016x}"


class Reference:
    def __init__(self, binary, model):
        self.binary, self.model = binary, model

    def ids(self, text, parse=False, bos=False):
        data = text if isinstance(text, bytes) else text.encode()
        if not data:
            return []
        with tempfile.NamedTemporaryFile() as file:
            file.write(data)
            file.flush()
            command = [self.binary, "-m", str(self.model), "--ids", "--no-escape", "-bf", file.name]
            command += [] if bos else ["--no-bos"]
            command += [] if parse else ["--no-parse-special"]
            done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode != 0:
            raise SystemExit(f"{command}\n{done.stderr[-2000:]}")
        return json.loads(done.stdout.strip().splitlines()[-1])

    def summary(self, text, **options):
        ids = self.ids(text, **options)
        return {"count": len(ids), "fnv": fnv(ids)}

    def case(self, text):
        as_text, parsed = self.ids(text), self.ids(text, parse=True)
        case = {"text": text, "ids": as_text}
        if parsed != as_text:
            case["parsed"] = parsed
        return case


def write(path, value):
    """One line per case: small, and a diff shows which case changed."""
    text = json.dumps(value, ensure_ascii=True, separators=(",", ":"))
    text = text.replace('{"text":', '\n{"text":').replace('],"', '],\n"').replace('},"', '},\n"')
    Path(path).write_text(text + "\n")
    print(path, len(text), "bytes")


def model(arguments):
    reference = Reference(arguments.llama_tokenize, arguments.model)
    corpus = Path(arguments.corpus).read_bytes()
    write(arguments.out, {
        "corpus": {"bytes": len(corpus), **reference.summary(corpus)},
        "fuzz": {"text": fuzz_text(), **reference.summary(fuzz_text())},
        "cases": [reference.case(text) for text in TEXTS],
    })


def fuzz_text(fragments=4000):
    pick = random.Random(7)
    return "".join(pick.choice(FRAGMENTS) for _ in range(fragments))


def training_text(path):
    """Prose, and enough of everything awkward that merges exist across every border a splitting may draw."""
    prose = Path(path).read_text()[:200_000]
    pick = random.Random(11)
    mixed = "".join(pick.choice(FRAGMENTS) for _ in range(20_000))
    numbers = " ".join(str(pick.randrange(10 ** pick.randrange(1, 8))) for _ in range(3_000))
    return prose + "\n".join(TEXTS * 5) + mixed + numbers


def byte_pairs(path):
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers

    text = training_text(path)
    # Pieces of fixed length: merges may join anything, as no trained splitting would let them.
    pieces = [text[i:i + 40] for i in range(0, len(text), 40)]
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer.train_from_iterator(pieces, trainers.BpeTrainer(vocab_size=1800, initial_alphabet=alphabet, show_progress=False))
    state = json.loads(tokenizer.to_str())["model"]
    tokens = [token for token, _ in sorted(state["vocab"].items(), key=lambda item: item[1])]
    merges = [merge if isinstance(merge, str) else " ".join(merge) for merge in state["merges"]]
    types = [NORMAL] * len(tokens)
    # Words that no merge makes: splittings that ignore merges find them, the others do not.
    for word in ["Ġjumps", "jumps", "Ġquick", "ĠĠĠĠĠĠĠ"]:
        if word not in tokens:
            tokens.append(word)
            types.append(NORMAL)
    special = {"<|endoftext|>": CONTROL, "<|im_start|>": CONTROL, "<|im_end|>": CONTROL, "<unk>": UNKNOWN, "<pad>": CONTROL,
               "<|a|>": CONTROL, "<|b|>": USER_DEFINED, "|><|": USER_DEFINED, "<tool_call>": USER_DEFINED,
               "</tool_call>": USER_DEFINED, "     ": USER_DEFINED, "unused 0": UNUSED}
    for token, kind in special.items():
        tokens.append(token)
        types.append(kind)
    return {"tokens": tokens, "types": types, "merges": merges, "bos": tokens.index("<|im_start|>"),
            "eos": tokens.index("<|im_end|>"), "unknown": tokens.index("<unk>")}


def sentence_piece(path):
    import io

    import sentencepiece

    model = io.BytesIO()
    lines = [line[:2000] for line in training_text(path).replace("\x00", "").split("\n") if line]
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines), model_writer=model, vocab_size=1500, model_type="bpe", byte_fallback=True,
        character_coverage=0.99, normalization_rule_name="identity", remove_extra_whitespaces=False,
        split_by_whitespace=False, allow_whitespace_only_pieces=True, split_digits=True, minloglevel=2,
        user_defined_symbols=["<tool_call>", "</tool_call>", "<|b|>", "|><|"],
        control_symbols=["<|im_start|>", "<|im_end|>", "<|a|>"])
    pieces = sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())
    tokens, scores, types = [], [], []
    for token in range(pieces.vocab_size()):
        tokens.append(pieces.id_to_piece(token))
        scores.append(pieces.get_score(token))
        types.append(
            UNKNOWN if pieces.is_unknown(token) else CONTROL if pieces.is_control(token) and "|b|" not in tokens[-1]
            else BYTE if pieces.is_byte(token) else UNUSED if pieces.is_unused(token) else NORMAL)
        if tokens[-1] in ("<tool_call>", "</tool_call>", "<|b|>", "|><|"):
            types[-1] = USER_DEFINED
    # As Gemma's files have them: runs of spaces, already unescaped.
    tokens += ["     ", "<unused0>"]
    scores += [-1000.0, -1000.0]
    types += [USER_DEFINED, UNUSED]
    return {"tokens": tokens, "scores": scores, "types": types, "bos": 1, "eos": 2, "unknown": 0}


def sentence_piece_by_merges(path):
    """As Gemma 4's: SentencePiece's spelling and single bytes, and a list of merges."""
    from tokenizers import Tokenizer, models, trainers

    text = training_text(path).replace("\x00", "").replace(" ", "\u2581")
    # Line breaks are apart, and their runs are tokens.
    lines = [line for line in text.split("\n") if line]
    pieces = [line[i:i + 40] for line in lines for i in range(0, len(line), 40)]
    special = {"<pad>": CONTROL, "<eos>": CONTROL, "<bos>": CONTROL, "<unk>": UNKNOWN, "<|turn>": CONTROL, "<turn|>": CONTROL,
               "<tool_call>": USER_DEFINED, "</tool_call>": USER_DEFINED, "<|b|>": USER_DEFINED, "unused 0": UNUSED}
    tokens, types = list(special), list(special.values())
    tokens += [f"<0x{byte:02X}>" for byte in range(256)] + ["\n" * count for count in range(1, 6)]
    types += [BYTE] * 256 + [NORMAL] * 5
    tokenizer = Tokenizer(models.BPE())
    tokenizer.train_from_iterator(
        pieces, trainers.BpeTrainer(vocab_size=900, limit_alphabet=200, initial_alphabet=["\u2581"], show_progress=False))
    state = json.loads(tokenizer.to_str())["model"]
    merges = [merge if isinstance(merge, str) else " ".join(merge) for merge in state["merges"]]
    own = [token for token, _ in sorted(state["vocab"].items(), key=lambda item: item[1]) if token not in tokens]
    return {"tokens": tokens + own, "types": types + [NORMAL] * len(own), "merges": merges, "bos": 2, "eos": 1, "unknown": 3}


def write_gguf(path, spec, kind, pre=None, more=lambda writer: None, **flags):
    from gguf import GGUFWriter

    writer = GGUFWriter(path, "llama")
    writer.add_name("golden")
    writer.add_context_length(512)
    writer.add_embedding_length(32)
    writer.add_block_count(1)
    writer.add_feed_forward_length(32)
    writer.add_head_count(2)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_dimension_count(16)
    writer.add_vocab_size(len(spec["tokens"]))
    writer.add_tokenizer_model(kind)
    if pre:
        writer.add_tokenizer_pre(pre)
    writer.add_token_list(spec["tokens"])
    writer.add_token_types(spec["types"])
    if "scores" in spec:
        writer.add_token_scores(spec["scores"])
    if "merges" in spec:
        writer.add_token_merges(spec["merges"])
    writer.add_bos_token_id(spec["bos"])
    writer.add_eos_token_id(spec["eos"])
    writer.add_unk_token_id(spec["unknown"])
    for key, value in flags.items():
        writer.add_bool(f"tokenizer.ggml.{key}", value)
    more(writer)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def small(arguments):
    out = Path(arguments.out)
    with tempfile.TemporaryDirectory() as folder:
        def reference(*args, **flags):
            path = Path(folder) / f"{len(list(Path(folder).iterdir()))}.gguf"
            write_gguf(path, *args, **flags)
            return Reference(arguments.llama_tokenize, path)

        fuzz = fuzz_text()
        if arguments.only in (None, "merges"):
            spec = sentence_piece_by_merges(arguments.text)
            asked = reference(spec, "gemma4", add_space_prefix=False, add_bos_token=True)
            fixture = {"spec": spec, "fuzz": fuzz, "plain": {"fuzz": asked.summary(fuzz), "cases": [asked.case(t) for t in TEXTS]}}
            fixture["prompt"] = {"text": "Hello", "ids": asked.ids("Hello", bos=True)}
            write(out / "tokenizer_merges.json", fixture)
        if arguments.only == "merges":
            return
        spec = byte_pairs(arguments.text)
        fixture = {"spec": spec, "fuzz": fuzz, "pre": {}}
        for pre in SHOWN + HASHED:
            asked = reference(spec, "gpt2", pre)
            fixture["pre"][pre] = {"fuzz": asked.summary(fuzz)}
            if pre in SHOWN:
                fixture["pre"][pre]["cases"] = [asked.case(text) for text in TEXTS]
        prompt = reference(spec, "gpt2", "llama-bpe", add_eos_token=True)
        fixture["prompt"] = {"text": "Hello", "ids": prompt.ids("Hello", bos=True)}
        write(out / "tokenizer_byte_pairs.json", fixture)

        spec = sentence_piece(arguments.text)
        fixture = {"spec": spec, "fuzz": fuzz}
        for name, prefix in [("prefixed", True), ("plain", False)]:
            asked = reference(spec, "llama", add_space_prefix=prefix)
            fixture[name] = {"fuzz": asked.summary(fuzz), "cases": [asked.case(text) for text in TEXTS]}
        fixture["prompt"] = {"text": "Hello", "ids": asked.ids("Hello", bos=True)}
        write(out / "tokenizer_sentence_piece.json", fixture)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    for run, needs in [(model, ["model", "corpus", "out"]), (small, ["text", "out"])]:
        command = commands.add_parser(run.__name__)
        command.set_defaults(run=run)
        command.add_argument("--only", choices=["merges"], help="of `small`, this fixture alone")
        for name in ["llama-tokenize", *needs]:
            command.add_argument(f"--{name}", required=True)
    arguments = parser.parse_args()
    arguments.run(arguments)


if __name__ == "__main__":
    main()
