"""WordPiece ids of varied texts, by the `tokenizers` library.

    python word_pieces.py TOKENIZER_JSON OUT.json

TOKENIZER_JSON is that of a BERT. Only the tokens that occur, and some more, are written: a vocabulary that is cut down to
them gives other ids to other texts, so the library is asked with the same vocabulary.

Needs: tokenizers.
"""

import json
import random
import sys

import tokenizers
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers

TEXTS = [
    "", " ", "\n\t ", "hello", "Hello, World!", "The quick brown fox jumps over the lazy dog.",
    "unbelievable antidisestablishmentarianism", "naïve café résumé Ångström Ö É ñ", "e\u0301 n\u0303 a\u0308\u0323",
    "İstanbul ISTANBUL ıI ẞ ß ſ", "ΑΒΓ ΣΟΦΟΣ σοφός", "Привет, мир! Ёжик", "שלום עולם", "مرحبا بالعالم", "हिन्दी भाषा क्षि",
    "日本語のテキスト", "中文字符 and 英文", "한국어 텍스트 가각", "ﬁne ﬀ ﷺ ①②③ ½", "don't can't o'clock rock'n'roll",
    "a-b_c/d\\e|f~g`h^i$j+k<l=m>n", "price: $3.50 (50% off!) @home #tag", "...!?!;:«»“”‘’—–·", "tab\tnew\nline\r\nend",
    "zero\u200bwidth soft\u00adhyphen nbsp\u00a0here ideographic\u3000space", "\u0000nul \ufffd replaced \u0007bell \u2028ls",
    "emoji 😀👩‍👩‍👧‍👦🇩🇪 done", "x" * 100, "y" * 101, "un" * 60, "https://example.com/path?query=1&b=2#frag",
    "def f(x: int) -> str:\n    return f\"{x!r}\"", "1234567890 3.14159 1e-9 0xff", "[CLS] [SEP] [MASK] [UNK] [PAD]",
    "##ing ##s ▁hello", "q\u0327\u0301 \u0301alone", "\U00020000 \U0002f800 \ufa0e", "A\u030a Å \u212b",
    "co\u0301mo esta\u0301s", "ǅ ǆ Ǆ", "𝐛𝐨𝐥𝐝 𝒾𝓉𝒶𝓁𝒾𝒸", "\u0e2a\u0e27\u0e31\u0e2a\u0e14\u0e35", "Tiếng Việt rất đẹp", "a" * 99 + "é",
]


def random_texts(count):
    numbers = random.Random(5)
    ranges = [(32, 126), (0xA0, 0x24F), (0x300, 0x36F), (0x370, 0x52F), (0x5D0, 0x6FF), (0x900, 0x97F), (0xE00, 0xE7F),
              (0x2000, 0x206F), (0x3040, 0x30FF), (0x4E00, 0x4FFF), (0xAC00, 0xAD00), (0x1F600, 0x1F64F), (0, 31)]
    for _ in range(count):
        text = "".join(chr(numbers.randint(*numbers.choice(ranges))) for _ in range(numbers.randint(1, 40)))
        # Punctuation since Unicode 14, which the library's tables do not have.
        yield text.replace("\u061d", "")


def cut_down(vocabulary, texts, whole):
    """Tokens that occur, their beginnings, and all that are short."""
    kept = {token for text in texts for token in whole.encode(text, add_special_tokens=False).tokens}
    kept |= {token for token in vocabulary if len(token.removeprefix("##")) <= 2 and len(token.encode()) <= 5}
    kept |= {"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"}
    return {token: index for index, token in enumerate(sorted(kept, key=vocabulary.get))}


def word_pieces(vocabulary, lowercase=True):
    made = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]", max_input_chars_per_word=100))
    made.normalizer = normalizers.BertNormalizer(lowercase=lowercase)
    made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    return made


def main():
    vocabulary = json.load(open(sys.argv[1]))["model"]["vocab"]
    texts = TEXTS + list(random_texts(120))
    small = cut_down(vocabulary, texts, word_pieces(vocabulary))
    reference = word_pieces(small)
    # Without the special tokens as such: they are text here, as they are to duet.
    cases = [{"text": text, "ids": reference.encode(text, add_special_tokens=False).ids} for text in texts]
    made = {"script": "scripts/golden/word_pieces.py", "reference": f"tokenizers {tokenizers.__version__}",
            "vocabulary": sorted(small, key=small.get), "cases": cases}
    json.dump(made, open(sys.argv[2], "w"), ensure_ascii=True)
    open(sys.argv[2], "a").write("\n")


if __name__ == "__main__":
    main()
