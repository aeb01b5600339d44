#!/usr/bin/env python3
"""Models with the shapes of published ones and random weights: for speed.

    model_shapes.py SHAPE TOKENIZER.gguf HEAD        what comes before the weights
    random_weights.py fill HEAD OUT.gguf             the file

SHAPE is gemma-4-e2b or qwen3-4b, with the types of a file in Q4_K_M. The tokenizer is that of any
model of the family (Gemma 3 270M's, Qwen2.5's), padded out to the vocabulary. Other engines read
the file as well. Speed does not depend on what weights are; how often drafts are right does.

Needs: numpy, gguf.
"""

import argparse

import gguf
import numpy as np
from gguf import GGMLQuantizationType as Type

# Bytes and weights of a block.
BLOCKS = {Type.F32: (4, 1), Type.Q4_K: (144, 256), Type.Q5_K: (176, 256), Type.Q6_K: (210, 256)}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("shape", choices=SHAPES)
    parser.add_argument("tokenizer")
    parser.add_argument("out")
    arguments = parser.parse_args()
    shape = SHAPES[arguments.shape]
    writer = gguf.GGUFWriter(arguments.out, shape.ARCHITECTURE)
    writer.add_name(f"Random weights shaped like {arguments.shape}")
    writer.add_file_type(int(gguf.LlamaFileType.MOSTLY_Q4_K_M))
    writer.add_layer_norm_rms_eps(1e-6)
    shape.settings(writer)
    vocabulary(writer, gguf.GGUFReader(arguments.tokenizer), shape.VOCABULARY)
    for name, dimensions, kind in shape.tensors():
        size, weights = BLOCKS[kind]
        writer.add_tensor_info(name, dimensions, np.dtype(np.float32), int(np.prod(dimensions)) // weights * size, kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    writer.close()


def vocabulary(writer, source, size):
    """The tokenizer of another file, with tokens that stand for nothing behind its own."""
    for field in source.fields.values():
        if not field.name.startswith("tokenizer."):
            continue
        value, kinds = field.contents(), field.types
        added = 0 if not isinstance(value, list) else max(size - len(value), 0)
        if field.name == "tokenizer.ggml.tokens":
            value = value[:size] + [f"[PAD{index}]" for index in range(size - added, size)]
        elif field.name == "tokenizer.ggml.token_type":
            value = value[:size] + [int(gguf.TokenType.UNUSED)] * added
        elif field.name == "tokenizer.ggml.scores":
            value = value[:size] + [-1e6] * added
        writer.add_key_value(field.name, value, kinds[0], sub_type=kinds[1] if len(kinds) > 1 else None)


def more_bits(layer, layers):
    """Whether a file in Q4_K_M has a layer's values and down projection in six bits."""
    return layer < layers // 8 or layer >= 7 * layers // 8 or (layer - layers // 8) % 3 == 2


class Gemma4E2b:
    """Layers with inputs of their own, of which the last twenty read the keys and values of earlier ones."""

    ARCHITECTURE, VOCABULARY = "gemma4", 262144
    HIDDEN, LAYERS, SHARED, HEADS, WINDOW, INPUT = 1536, 35, 20, 8, 512, 256
    WINDOWED = [layer % 5 != 4 for layer in range(LAYERS)]
    HEAD = [256 if windowed else 512 for windowed in WINDOWED]
    FFN = 15 * [6144] + 20 * [12288]

    @classmethod
    def settings(cls, writer):
        writer.add_block_count(cls.LAYERS)
        writer.add_context_length(131072)
        writer.add_embedding_length(cls.HIDDEN)
        writer.add_feed_forward_length(cls.FFN)
        writer.add_head_count(cls.HEADS)
        writer.add_head_count_kv([1] * cls.LAYERS)
        writer.add_shared_kv_layers(cls.SHARED)
        writer.add_embedding_length_per_layer_input(cls.INPUT)
        writer.add_sliding_window_pattern(cls.WINDOWED)
        writer.add_sliding_window(cls.WINDOW)
        for add in (writer.add_key_length, writer.add_value_length, writer.add_rope_dimension_count):
            add(512)
        for add in (writer.add_key_length_swa, writer.add_value_length_swa, writer.add_rope_dimension_count_swa):
            add(256)
        writer.add_rope_freq_base(1e6)
        writer.add_rope_freq_base_swa(1e4)
        writer.add_final_logit_softcapping(30.0)

    @classmethod
    def tensors(cls):
        hidden = cls.HIDDEN
        yield "token_embd.weight", (cls.VOCABULARY, hidden), Type.Q6_K
        yield "per_layer_token_embd.weight", (cls.VOCABULARY, cls.LAYERS * cls.INPUT), Type.Q5_K
        yield "per_layer_model_proj.weight", (cls.LAYERS * cls.INPUT, hidden), Type.Q4_K
        yield "per_layer_proj_norm.weight", (cls.INPUT,), Type.F32
        yield "output_norm.weight", (hidden,), Type.F32
        yield "rope_freqs.weight", (256,), Type.F32
        for layer in range(cls.LAYERS):
            name, head, ffn = f"blk.{layer}.", cls.HEAD[layer], cls.FFN[layer]
            large = Type.Q6_K if more_bits(layer, cls.LAYERS) else Type.Q4_K
            for norm in ("attn_norm", "post_attention_norm", "ffn_norm", "post_ffw_norm", "post_norm"):
                yield f"{name}{norm}.weight", (hidden,), Type.F32
            yield f"{name}layer_output_scale.weight", (1,), Type.F32
            yield f"{name}attn_q_norm.weight", (head,), Type.F32
            yield f"{name}attn_q.weight", (cls.HEADS * head, hidden), Type.Q4_K
            if layer < cls.LAYERS - cls.SHARED:
                yield f"{name}attn_k_norm.weight", (head,), Type.F32
                yield f"{name}attn_k.weight", (head, hidden), Type.Q4_K
                yield f"{name}attn_v.weight", (head, hidden), large
            yield f"{name}attn_output.weight", (hidden, cls.HEADS * head), Type.Q4_K
            yield f"{name}ffn_gate.weight", (ffn, hidden), Type.Q4_K
            yield f"{name}ffn_up.weight", (ffn, hidden), Type.Q4_K
            yield f"{name}ffn_down.weight", (hidden, ffn), large
            yield f"{name}inp_gate.weight", (cls.INPUT, hidden), Type.Q4_K
            yield f"{name}proj.weight", (hidden, cls.INPUT), Type.Q4_K


class Qwen3Of4b:
    """Dense, with norms on each head."""

    ARCHITECTURE, VOCABULARY = "qwen3", 151936
    HIDDEN, LAYERS, HEADS, KV_HEADS, HEAD, FFN = 2560, 36, 32, 8, 128, 9728

    @classmethod
    def settings(cls, writer):
        writer.add_block_count(cls.LAYERS)
        writer.add_context_length(40960)
        writer.add_embedding_length(cls.HIDDEN)
        writer.add_feed_forward_length(cls.FFN)
        writer.add_head_count(cls.HEADS)
        writer.add_head_count_kv(cls.KV_HEADS)
        writer.add_key_length(cls.HEAD)
        writer.add_value_length(cls.HEAD)
        writer.add_rope_freq_base(1e6)

    @classmethod
    def tensors(cls):
        hidden, keys = cls.HIDDEN, cls.KV_HEADS * cls.HEAD
        yield "token_embd.weight", (cls.VOCABULARY, hidden), Type.Q6_K
        yield "output_norm.weight", (hidden,), Type.F32
        for layer in range(cls.LAYERS):
            name = f"blk.{layer}."
            large = Type.Q6_K if more_bits(layer, cls.LAYERS) else Type.Q4_K
            norms = {"attn_norm": hidden, "ffn_norm": hidden, "attn_q_norm": cls.HEAD, "attn_k_norm": cls.HEAD}
            for norm, width in norms.items():
                yield f"{name}{norm}.weight", (width,), Type.F32
            yield f"{name}attn_q.weight", (cls.HEADS * cls.HEAD, hidden), Type.Q4_K
            yield f"{name}attn_k.weight", (keys, hidden), Type.Q4_K
            yield f"{name}attn_v.weight", (keys, hidden), large
            yield f"{name}attn_output.weight", (hidden, cls.HEADS * cls.HEAD), Type.Q4_K
            yield f"{name}ffn_gate.weight", (cls.FFN, hidden), Type.Q4_K
            yield f"{name}ffn_up.weight", (cls.FFN, hidden), Type.Q4_K
            yield f"{name}ffn_down.weight", (hidden, cls.FFN), large


SHAPES = {"gemma-4-e2b": Gemma4E2b, "qwen3-4b": Qwen3Of4b}


if __name__ == "__main__":
    main()
