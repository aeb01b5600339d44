"""Reference logits of a tiny model in every tensor type that duet reads.

    python quant_models.py OUT_DIR

The model (Qwen 2's architecture, one layer) is not written: its blocks are random bytes from a
seeded generator, which `crates/model/src/exact/tests/random_blocks.rs` has as well. Here the gguf
package says what weights these blocks mean, and Hugging Face transformers computes the logits that
`golden_quant_models.json` holds, in f32 with eager attention.

Needs: torch, transformers, gguf, numpy. The committed file was made with torch 2.15.0,
transformers 5.23.0, gguf 0.19.0 and numpy 2.4.6.
"""

import argparse
import json
import pathlib

import gguf
import numpy as np
import torch
import transformers
from gguf import GGMLQuantizationType as Type

HIDDEN, FFN, HEADS, KV_HEADS, HEAD, VOCAB = 256, 256, 8, 1, 32, 260
EPSILON, THETA = 1e-6, 1000000.0
TOKENS, ROWS = 24, [1, 23]

# Where a block has half-precision numbers, and the bits that their sign and exponent become; the
# rest of such a number stays random. Chosen so that weights are about 0.07 wide.
HALVES = {
    Type.Q4_0: [(0, 0x2400)],
    Type.Q4_1: [(0, 0x2400), (2, 0xB000)],
    Type.Q5_0: [(0, 0x2000)],
    Type.Q5_1: [(0, 0x2000), (2, 0xB000)],
    Type.Q8_0: [(0, 0x1400)],
    Type.Q2_K: [(80, 0x2000), (82, 0x2400)],
    Type.Q3_K: [(108, 0x1800)],
    Type.Q4_K: [(0, 0x1000), (2, 0x1C00)],
    Type.Q5_K: [(0, 0x0C00), (2, 0x1C00)],
    Type.Q6_K: [(208, 0x0400)],
    Type.IQ4_NL: [(0, 0x1400)],
    Type.IQ4_XS: [(0, 0x0400)],
    Type.MXFP4: [],
}
# The same for a byte that is an exponent: of which its last two bits stay random.
EXPONENTS = {Type.MXFP4: (0, 120)}
# How many of 16 random bits are dropped, and the unit (a power of two) of those that are left.
FLOATS = {Type.F32: (0, 18), Type.F16: (5, 13), Type.BF16: (8, 10)}

# What files of mixed types are like: tensors that are packed together differ.
MIXED = {"attn_v": Type.Q6_K, "ffn_down": Type.Q6_K, "output": Type.Q6_K, "ffn_up": Type.Q5_K}

MODELS = {kind.name.lower(): (lambda name, kind=kind: kind) for kind in [*FLOATS, *HALVES]}
MODELS["mixed"] = lambda name: MIXED.get(name, Type.Q4_K)


def random_bytes(name, count):
    """Splitmix64 from a seed that is the name's FNV-1a hash."""
    seed = 0xCBF29CE484222325
    for byte in name.encode():
        seed = ((seed ^ byte) * 0x100000001B3) % 2**64
    words = np.arange(1, count // 8 + 2, dtype=np.uint64)
    with np.errstate(over="ignore"):
        words = np.uint64(seed) + words * np.uint64(0x9E3779B97F4A7C15)
        words = (words ^ (words >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        words = (words ^ (words >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        words ^= words >> np.uint64(31)
    return words.astype("<u8").view(np.uint8)[:count]


def steps(name, count, drop, shift):
    """Signed steps of 16 bits less the last `drop`, in units of 2^-shift."""
    drawn = random_bytes(name, count * 2).view("<u2").astype(np.int64) >> drop
    return ((drawn - (32768 >> drop)) / 2.0**shift).astype(np.float32)


def weights(name, kind, rows, columns):
    """A matrix as the gguf package reads its blocks."""
    if kind in FLOATS:
        drop, shift = FLOATS[kind]
        return steps(f"{name}.weight", rows * columns, drop, shift).reshape(rows, columns)
    elements, size = gguf.GGML_QUANT_SIZES[kind]
    blocks = random_bytes(f"{name}.weight", rows * columns // elements * size).reshape(-1, size).copy()
    for at, bits in HALVES[kind]:
        field = blocks[:, at:at + 2].copy().view("<u2")
        blocks[:, at:at + 2] = ((field & 0x03FF) | bits).astype("<u2").view(np.uint8)
    if kind in EXPONENTS:
        at, exponent = EXPONENTS[kind]
        blocks[:, at] = blocks[:, at] & 3 | exponent
    return gguf.quants.dequantize(blocks.reshape(rows, -1), kind).astype(np.float32)


def fill(model, kind_of):
    """Gives every parameter its numbers."""
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.QWEN2, 1)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            to = names.get_name(name, try_suffixes=(".weight", ".bias"))
            stem, ending = to.rsplit(".", 1)
            if ending == "bias":
                value = steps(to, parameter.numel(), 0, 16)
            elif "norm" in stem:
                value = 1 + steps(to, parameter.numel(), 0, 17)
            else:
                value = weights(stem, kind_of(stem.rsplit(".", 1)[-1]), *parameter.shape)
            parameter.copy_(torch.from_numpy(np.ascontiguousarray(value)))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=pathlib.Path)
    out = parser.parse_args().out
    tokens = np.random.default_rng(2).integers(0, VOCAB, TOKENS).tolist()
    models = {}
    for name, kind_of in MODELS.items():
        config = transformers.Qwen2Config(
            vocab_size=VOCAB, hidden_size=HIDDEN, num_hidden_layers=1, num_attention_heads=HEADS,
            num_key_value_heads=KV_HEADS, intermediate_size=FFN, rms_norm_eps=EPSILON,
            tie_word_embeddings=False, max_position_embeddings=256, attn_implementation="eager",
            rope_parameters=dict(rope_type="default", rope_theta=THETA))
        model = transformers.Qwen2ForCausalLM(config).float().eval()
        fill(model, kind_of)
        with torch.no_grad():
            logits = model(torch.tensor([tokens])).logits[0].numpy()
        spread = [p.std().item() for n, p in model.named_parameters() if n.endswith("proj.weight")]
        print(f"{name:6} weights {min(spread):.3f} to {max(spread):.3f}, logits {logits.std():.3f}")
        models[name] = [[float(f"{x:.7g}") for x in logits[row]] for row in ROWS]
    record = {
        "reference": f"transformers {transformers.__version__}, f32, eager attention, weights read "
                     "by the gguf package",
        "tokens": tokens,
        "rows": ROWS,
        "models": models,
    }
    (out / "golden_quant_models.json").write_text(json.dumps(record, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
