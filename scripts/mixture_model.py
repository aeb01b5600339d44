#!/usr/bin/env python3
"""A mixture of experts of random weights, in layers shaped like Qwen3-30B-A3B's: for speed.

    mixture_model.py TOKENIZER.gguf OUT.gguf [--layers 8]

128 experts of 768 neurons a layer, of which a token goes to 8, in Q4_K: a layer takes 350 MB. The
tokenizer is that of any model of the family, padded out to the vocabulary. Other engines read the
file as well.

A router of random weights sends tokens to all experts alike, and real ones do not: which experts
are in memory then matters less than it does. So each expert has a popularity here, drawn once for a
layer: all embeddings have a part in common, by which routers add it to their scores. It is as wide
as counts that have been published of Qwen3-30B-A3B over prose, code and mathematics: 65 of 128
experts have 90 % of what tokens go to (mcp-tool-shop-org.github.io/gpu-container/handbook/derisk).
`duet calibrate` counts what came of it: 61 in the first layer, and fewer in later ones, since what
random weights make of a token is not around zero. What real text has beside that, that a token often
goes where the one before it went, is not here.

Needs: numpy, gguf.
"""

import argparse

import gguf
import numpy as np
from gguf import GGMLQuantizationType as Type

HIDDEN, HEADS, KV_HEADS, HEAD = 2048, 32, 4, 128
EXPERTS, CHOSEN, WIDTH, VOCABULARY = 128, 8, 768, 151936
ARCHITECTURE = "qwen3moe"

# Columns of the embeddings that all tokens have in common, and how far popularities are apart: in units of what
# a token's own part adds to a score.
COMMON, SPREAD = 64, 0.62
WEIGHT = 0.02


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tokenizer")
    parser.add_argument("out")
    parser.add_argument("--layers", type=int, default=8)
    arguments = parser.parse_args()
    random = np.random.default_rng(1)
    writer = gguf.GGUFWriter(arguments.out, ARCHITECTURE)
    settings(writer, arguments.layers)
    vocabulary(writer, gguf.GGUFReader(arguments.tokenizer))
    blocks = Blocks(random)
    writer.add_tensor("token_embd.weight", embeddings(random), raw_dtype=Type.Q4_0)
    writer.add_tensor("output_norm.weight", np.ones(HIDDEN, np.float32))
    blocks.matrix(writer, "output", VOCABULARY, HIDDEN)
    for layer in range(arguments.layers):
        name = f"blk.{layer}."
        for norm, width in [("attn_norm", HIDDEN), ("ffn_norm", HIDDEN), ("attn_q_norm", HEAD), ("attn_k_norm", HEAD)]:
            writer.add_tensor(f"{name}{norm}.weight", np.ones(width, np.float32))
        blocks.matrix(writer, f"{name}attn_q", HEADS * HEAD, HIDDEN)
        blocks.matrix(writer, f"{name}attn_k", KV_HEADS * HEAD, HIDDEN)
        blocks.matrix(writer, f"{name}attn_v", KV_HEADS * HEAD, HIDDEN)
        blocks.matrix(writer, f"{name}attn_output", HIDDEN, HEADS * HEAD)
        writer.add_tensor(f"{name}ffn_gate_inp.weight", router(random))
        blocks.matrix(writer, f"{name}ffn_gate_exps", WIDTH, HIDDEN, EXPERTS)
        blocks.matrix(writer, f"{name}ffn_up_exps", WIDTH, HIDDEN, EXPERTS)
        blocks.matrix(writer, f"{name}ffn_down_exps", HIDDEN, WIDTH, EXPERTS)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def settings(writer, layers):
    writer.add_name(f"Random weights shaped like Qwen3-30B-A3B, {layers} layers")
    writer.add_block_count(layers)
    writer.add_context_length(40960)
    writer.add_embedding_length(HIDDEN)
    writer.add_feed_forward_length(6144)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_key_length(HEAD)
    writer.add_value_length(HEAD)
    writer.add_expert_count(EXPERTS)
    writer.add_expert_used_count(CHOSEN)
    writer.add_expert_feed_forward_length(WIDTH)
    writer.add_rope_freq_base(1e6)
    writer.add_layer_norm_rms_eps(1e-6)
    writer.add_file_type(int(gguf.LlamaFileType.MOSTLY_Q4_K_S))


def vocabulary(writer, source):
    """The tokenizer of another file, with tokens that stand for nothing behind its own."""
    for field in source.fields.values():
        if not field.name.startswith("tokenizer."):
            continue
        value, kinds = field.contents(), field.types
        if field.name == "tokenizer.ggml.tokens":
            value += [f"[PAD{index}]" for index in range(len(value), VOCABULARY)]
        elif field.name == "tokenizer.ggml.token_type":
            value += [int(gguf.TokenType.UNUSED)] * (VOCABULARY - len(value))
        sub = kinds[1] if len(kinds) > 1 else None
        writer.add_key_value(field.name, value, kinds[0], sub_type=sub)


def embeddings(random):
    """Blocks of Q4_0 in which weights are about one apart, around zero, and the common part is one."""
    blocks = np.empty((VOCABULARY, HIDDEN // 32, 18), np.uint8)
    # Two quants a byte, from -7 to 7 in steps that are stored as 1 to 15.
    pairs = np.array([low | high << 4 for low in range(1, 16) for high in range(1, 16)], np.uint8)
    blocks[:, :, 2:] = pairs[random.integers(0, len(pairs), (VOCABULARY, HIDDEN // 32, 16), np.uint8)]
    blocks[:, :, :2] = np.array([1 / 4.3], np.float16).view(np.uint8)
    common = COMMON // 32
    blocks[:, :common, :2] = np.array([1 / 7], np.float16).view(np.uint8)
    blocks[:, :common, 2:] = 0xFF
    return blocks.reshape(VOCABULARY, -1)


def router(random):
    """What a token's own part adds to a score is one wide, and what the common part adds is the popularity."""
    weights = random.standard_normal((EXPERTS, HIDDEN)) / np.sqrt(HIDDEN - COMMON)
    weights[:, :COMMON] = SPREAD * (12**0.5 * (random.random((EXPERTS, 1)) - 0.5)) / COMMON
    return weights.astype(np.float32)


class Blocks:
    """Matrices as parts of one stretch of random blocks of Q4_K, so that making them takes no longer than writing."""

    SIZE, WEIGHTS = 144, 256

    def __init__(self, random):
        self.random = random
        count = max(VOCABULARY, EXPERTS * WIDTH) * HIDDEN // self.WEIGHTS + 4096
        blocks = random.integers(0, 256, (count, self.SIZE), np.uint8)
        # Quants are around 7.5. Minima are that many small scales, so that the weights of each are around zero.
        blocks[:, 8:12] = blocks[:, 4:8]
        blocks[:, 12:16] = (blocks[:, 12:16] & 15) * 17
        blocks[:, :2], blocks[:, 2:4] = (np.array([scale], np.float16).view(np.uint8) for scale in (1.0, 7.5))
        spread = float(np.std(gguf.quants.dequantize(blocks[:256], Type.Q4_K)))
        blocks[:, :2] = np.array([WEIGHT / spread], np.float16).view(np.uint8)
        blocks[:, 2:4] = np.array([7.5 * WEIGHT / spread], np.float16).view(np.uint8)
        self.blocks = blocks

    def matrix(self, writer, name, rows, columns, count=None):
        blocks = (count or 1) * rows * columns // self.WEIGHTS
        first = int(self.random.integers(0, len(self.blocks) - blocks + 1))
        shape = (rows, -1) if count is None else (count, rows, columns // self.WEIGHTS * self.SIZE)
        writer.add_tensor(f"{name}.weight", self.blocks[first : first + blocks].reshape(shape), raw_dtype=Type.Q4_K)


if __name__ == "__main__":
    main()
