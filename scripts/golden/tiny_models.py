"""Tiny random models with reference logits, for the architectures duet implements.

    python tiny_models.py OUT_DIR [--llama LLAMA_CPP_DIR] [NAME ...]

For each model this writes `golden_NAME.gguf` (F32, llama.cpp's tensor names and conventions) and
`golden_NAME.json`: fixed tokens, and for some rows the logits that Hugging Face transformers
computes in f32 with eager attention. Weights and tokens come from numpy's seeded generator, so
that neither depends on the torch version.

With `--llama`, every file is also run by llama.cpp (f32 KV, no flash attention) and the two are
compared; the run fails where they differ by more than `TOLERANCE`.

Needs: torch, transformers, gguf, numpy.
"""

import argparse
import json
import math
import pathlib
import sys

import gguf
import numpy as np
import torch
import transformers

import libllama

TOKENS = 80
# llama.cpp computes Gemma's GELU through an f16 table, everything else in f32.
TOLERANCE = {"gemma3": 5e-3}
TOLERANCE_DEFAULT = 1e-4
# The first rows, both sides of Gemma's window of 16, the middle, the last.
ROWS = [0, 1, 15, 16, 40, 79]
VOCAB = 260
CONTEXT = 256

MERGES = ["h e", "Ġ t"]


def llama(**more):
    """SmolLM2 and Llama: adjacent-pair rotary embedding in the file, so q and k are permuted."""
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(**base(**more)))


def qwen2(**more):
    """Qwen 2 and 2.5: biases on q, k and v."""
    return transformers.Qwen2ForCausalLM(transformers.Qwen2Config(**base(**more)))


def qwen3(**more):
    """Qwen 3: RMS norm on every head of q and k."""
    return transformers.Qwen3ForCausalLM(transformers.Qwen3Config(**base(**more)))


def gemma3(**more):
    """Gemma 3: five windowed layers to one global, each kind with its own rotary base."""
    return transformers.Gemma3ForCausalLM(transformers.Gemma3TextConfig(**base(**more)))


def base(**more):
    return dict(vocab_size=VOCAB, max_position_embeddings=CONTEXT, bos_token_id=256,
                eos_token_id=257, pad_token_id=258, attn_implementation="eager",
                **more)


def rope(kind="default", theta=10000.0, **more):
    return dict(rope_type=kind, rope_theta=theta, **more)


# Name: architecture, then its shape. A head is 32 wide throughout; where heads x 32 is not the
# hidden size the file says so with `attention.key_length`.
MODELS = {
    "llama": (llama, dict(
        hidden_size=64, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=1,
        intermediate_size=96, rms_norm_eps=1e-5, tie_word_embeddings=False,
        rope_parameters=rope(theta=100000.0))),
    "llama_rope_llama3": (llama, dict(
        hidden_size=32, num_hidden_layers=3, num_attention_heads=4, num_key_value_heads=2,
        head_dim=32, intermediate_size=96, rms_norm_eps=1e-5, tie_word_embeddings=True,
        # The original context is short, so that all three bands (kept, blended, divided) occur.
        rope_parameters=rope("llama3", 500000.0, factor=8.0, low_freq_factor=1.0,
                             high_freq_factor=4.0, original_max_position_embeddings=64))),
    "llama_rope_linear": (llama, dict(
        hidden_size=32, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
        head_dim=32, intermediate_size=64, rms_norm_eps=1e-5, tie_word_embeddings=True,
        rope_parameters=rope("linear", 10000.0, factor=4.0))),
    "qwen2": (qwen2, dict(
        hidden_size=64, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=1,
        intermediate_size=128, rms_norm_eps=1e-6, tie_word_embeddings=True,
        rope_parameters=rope(theta=1000000.0))),
    "qwen3": (qwen3, dict(
        hidden_size=64, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
        head_dim=32, intermediate_size=64, rms_norm_eps=1e-6, tie_word_embeddings=True,
        rope_parameters=rope(theta=1000000.0))),
    "gemma3": (gemma3, dict(
        hidden_size=32, num_hidden_layers=7, num_attention_heads=2, num_key_value_heads=1,
        head_dim=32, query_pre_attn_scalar=32, intermediate_size=64, rms_norm_eps=1e-6,
        tie_word_embeddings=True, hidden_activation="gelu_pytorch_tanh", sliding_window=16,
        layer_types=["sliding_attention"] * 5 + ["full_attention", "sliding_attention"],
        # The global layers' scaling is that of the 4B and larger models.
        rope_parameters=dict(sliding_attention=rope(theta=10000.0),
                             full_attention=rope("linear", 1000000.0, factor=8.0)))),
}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--llama", help="folder of libllama.so, to compare with")
    arguments = parser.parse_args()
    library = libllama.Library(arguments.llama) if arguments.llama else None
    arguments.out.mkdir(parents=True, exist_ok=True)

    failed = False
    for name in arguments.names or MODELS:
        build, shape = MODELS[name]
        model = build(**shape).float().eval()
        randomise(model, seed=int.from_bytes(name.encode(), "little") % 2**32)
        path = arguments.out / f"golden_{name}.gguf"
        write_gguf(model, path)
        tokens = np.random.default_rng(1).integers(0, VOCAB, TOKENS).tolist()
        with torch.no_grad():
            logits = model(torch.tensor([tokens])).logits[0].numpy()
        record = {
            "model": path.name,
            "architecture": model.config.model_type.removesuffix("_text"),
            "reference": f"transformers {transformers.__version__}, f32, eager attention",
            "tokens": tokens,
            "argmax": logits.argmax(-1).tolist(),
            "rows": ROWS,
            "logits": [[float(f"{x:.7g}") for x in logits[row]] for row in ROWS],
        }
        fixture = arguments.out / f"golden_{name}.json"
        fixture.write_text(json.dumps(record, separators=(",", ":")) + "\n")
        line = f"{name:18} {path.stat().st_size + fixture.stat().st_size:7} bytes, " \
               f"logits std {logits.std():.3f}, attention spread {spread(model, tokens):.2f}"
        if library:
            difference = compare(library, path, tokens, logits)
            ok = difference <= TOLERANCE.get(name, TOLERANCE_DEFAULT)
            failed |= not ok
            line += f", llama.cpp max diff {difference:.2e}{'' if ok else ' TOO LARGE'}"
        print(line, flush=True)
    sys.exit(failed)


def randomise(model, seed):
    """Weights large enough that attention, norms and biases all show in the logits."""
    random = np.random.default_rng(seed)
    gemma = model.config.model_type == "gemma3_text"
    with torch.no_grad():
        for name, parameter in sorted(model.named_parameters()):
            if name.endswith("norm.weight"):
                # Gemma's stored weight is the distance from one.
                value = random.normal(0.0 if gemma else 1.0, 0.2, parameter.shape)
            elif name.endswith("bias"):
                value = random.normal(0.0, 0.5, parameter.shape)
            elif "embed_tokens" in name:
                value = random.normal(0.0, 0.2, parameter.shape)
            else:
                value = random.normal(0.0, 1.2 / math.sqrt(parameter.shape[1]), parameter.shape)
            parameter.copy_(torch.from_numpy(value.astype(np.float32)))


def write_gguf(model, path):
    config = model.config
    arch = config.model_type.removesuffix("_text")
    head = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    writer = gguf.GGUFWriter(path, arch)
    writer.add_name(path.stem)
    writer.add_file_type(gguf.LlamaFileType.ALL_F32)
    writer.add_context_length(CONTEXT)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_vocab_size(VOCAB)
    if head * config.num_attention_heads != config.hidden_size or arch == "gemma3":
        writer.add_key_length(head)
        writer.add_value_length(head)
    if arch == "llama":
        writer.add_rope_dimension_count(head)

    scaling = config.rope_parameters
    if arch == "gemma3":
        writer.add_sliding_window(config.sliding_window)
        # The local layers' base (10000) and the pattern (every sixth layer is global) are
        # constants of the architecture in llama.cpp's files: no key says them.
        scaling = scaling["full_attention"]
    writer.add_rope_freq_base(scaling["rope_theta"])
    if scaling["rope_type"] == "linear":
        writer.add_rope_scaling_type(gguf.RopeScalingType.LINEAR)
        writer.add_rope_scaling_factor(scaling["factor"])
    elif scaling["rope_type"] == "llama3":
        writer.add_tensor("rope_freqs.weight", llama3_factors(scaling, head))

    add_tokenizer(writer)
    names = gguf.get_tensor_name_map(getattr(gguf.MODEL_ARCH, arch.upper()),
                                     config.num_hidden_layers)
    for name, parameter in model.state_dict().items():
        if name == "lm_head.weight" and config.tie_word_embeddings:
            continue
        data = parameter.numpy()
        if arch == "llama" and name.endswith(("q_proj.weight", "k_proj.weight")):
            data = interleave_halves(data, head)
        if arch == "gemma3" and name.endswith("norm.weight"):
            data = data + np.float32(1)
        to = names.get_name(name, try_suffixes=(".weight", ".bias"))
        assert to, f"no GGUF name for {name}"
        writer.add_tensor(to, np.ascontiguousarray(data))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def interleave_halves(weight, head):
    """Reorders each head's rows from (first half, second half) to adjacent pairs."""
    rows, columns = weight.shape
    return weight.reshape(rows // head, 2, head // 2, columns).swapaxes(1, 2).reshape(rows, columns)


def llama3_factors(scaling, head):
    """What each rotary frequency is divided by (Llama 3.1)."""
    frequency = scaling["rope_theta"] ** (-np.arange(0, head, 2) / head)
    wavelength = 2 * math.pi / frequency
    context, factor = scaling["original_max_position_embeddings"], scaling["factor"]
    low, high = scaling["low_freq_factor"], scaling["high_freq_factor"]
    blend = np.clip((context / wavelength - low) / (high - low), 0, 1)
    factors = 1 / ((1 - blend) / factor + blend)
    bands = (factors == 1).any(), (factors == factor).any(), ((1 < factors) & (factors < factor)).any()
    assert all(bands), f"a band of the scaling does not occur: {factors}"
    return factors.astype(np.float32)


def add_tokenizer(writer):
    """Byte-level BPE: 256 bytes in GPT-2's spelling, two control tokens, two merges."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    spelling, moved = {}, 0
    for byte in range(256):
        if byte in printable:
            spelling[byte] = chr(byte)
        else:
            spelling[byte] = chr(256 + moved)
            moved += 1
    tokens = [spelling[byte] for byte in range(256)] + ["<|bos|>", "<|eos|>"]
    tokens += [merge.replace(" ", "") for merge in MERGES]
    assert len(tokens) == VOCAB == len(set(tokens))
    kinds = [gguf.TokenType.NORMAL] * VOCAB
    kinds[256] = kinds[257] = gguf.TokenType.CONTROL
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(tokens)
    writer.add_token_types(kinds)
    writer.add_token_merges(MERGES)
    writer.add_bos_token_id(256)
    writer.add_eos_token_id(257)
    writer.add_add_bos_token(False)


def spread(model, tokens):
    """Mean of the largest attention weight over the last row's heads: 1/n would be degenerate."""
    with torch.no_grad():
        attentions = model(torch.tensor([tokens]), output_attentions=True).attentions
    return float(np.mean([a[0, :, -1].max(-1).values.mean() for a in attentions]))


def compare(library, path, tokens, logits):
    """The largest difference over all rows between llama.cpp's logits and `logits`."""
    model = libllama.Model(library, path, CONTEXT, kv=libllama.F32, flash_attn=0)
    theirs = np.array(model.logits(tokens, 0, range(len(tokens))))
    model.close()
    return float(np.abs(theirs - logits).max())


if __name__ == "__main__":
    main()
