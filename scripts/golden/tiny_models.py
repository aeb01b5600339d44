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
import re
import sys

import gguf
import numpy as np
import torch
import transformers

import gemma4
import libllama

TOKENS = 80
# llama.cpp computes Gemma's GELU through an f16 table, everything else in f32; for Gemma 4 its
# reference has such a table as well. It sums a delta net in another order.
TOLERANCE = {"gemma3": 5e-3, "gemma4": 5e-3, "gemma4_dense": 5e-3, "gemma4_experts": 5e-3, "qwen3next": 5e-4, "qwen3next_old": 5e-4, "qwen35moe": 5e-4}
# llama.cpp routes Phi's tokens by a plain softmax of two, and rounds what it multiplies with MXFP4, so only transformers is a
# reference.
NOT_LLAMA_CPP = {"phimoe", "phimoe_longrope", "gptoss_mxfp4"}
TOLERANCE_DEFAULT = 1e-4
# The first rows, both sides of Gemma's window of 16, the middle, the last.
ROWS = [0, 1, 15, 16, 40, 79]
VOCAB = 260
ROUTER_SPREAD = 4.0
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


def smollm3(**more):
    """SmolLM 3: llama, with no rotary embedding in every fourth layer."""
    return transformers.SmolLM3ForCausalLM(transformers.SmolLM3Config(**base(**more)))


def gemma3(**more):
    """Gemma 3: five windowed layers to one global, each kind with its own rotary base."""
    return transformers.Gemma3ForCausalLM(transformers.Gemma3TextConfig(**base(**more)))


def mixtral(**more):
    """Mixtral: llama with experts, whose weights are a softmax over the chosen."""
    return transformers.MixtralForCausalLM(transformers.MixtralConfig(**base(**more)))


def olmoe(**more):
    """OLMoE: norms over the whole width of q and k; the chosen keep their share among all experts."""
    return transformers.OlmoeForCausalLM(transformers.OlmoeConfig(**base(**more)))


def qwen2moe(**more):
    """Qwen 2 with experts: also one that every token goes to, by a gate of its own."""
    return transformers.Qwen2MoeForCausalLM(transformers.Qwen2MoeConfig(**base(**more)))


def qwen3moe(**more):
    """Qwen 3 with experts, whose weights sum to one."""
    return transformers.Qwen3MoeForCausalLM(transformers.Qwen3MoeConfig(**base(**more)))


def phimoe(**more):
    """Phi with experts: sparse mixer, layer norms, biases."""
    return transformers.PhimoeForCausalLM(transformers.PhimoeConfig(**base(**more)))


def phi3(**more):
    """Phi 3 and 4: one tensor for q, k and v, one for gate and up; rotary embedding in a part of a head."""
    return transformers.Phi3ForCausalLM(transformers.Phi3Config(**base(**more)))


def gptoss(**more):
    """gpt-oss: sinks in every attention, biases everywhere, a clamped gate, windows in every other layer."""
    return transformers.GptOssForCausalLM(transformers.GptOssConfig(**base(**more)))


def glm4moe(**more):
    """GLM 4.5: a dense layer first, then experts by sigmoids and a bias that only chooses, and one that all tokens go to."""
    return transformers.Glm4MoeForCausalLM(transformers.Glm4MoeConfig(num_mtp_layers=0, **base(**more)))


def lfm2(**more):
    """LFM 2: short convolutions in most layers, attention in the others."""
    return transformers.Lfm2ForCausalLM(transformers.Lfm2Config(block_auto_adjust_ff_dim=False, **base(**more)))


def lfm2moe(**more):
    """LFM 2 with experts by sigmoids, behind dense layers."""
    return transformers.Lfm2MoeForCausalLM(transformers.Lfm2MoeConfig(**base(**more)))


def qwen3next(**more):
    """Qwen3-Next: gated delta nets in most layers, attention with gates in the others, experts and a shared one."""
    return transformers.Qwen3NextForCausalLM(transformers.Qwen3NextConfig(**base(**more)))


def qwen35(**more):
    """Qwen 3.5: the same layers, dense, the delta net's heads of values in turns."""
    return transformers.Qwen3_5ForCausalLM(transformers.Qwen3_5TextConfig(**base(**more)))


def qwen35moe(**more):
    """Qwen 3.5 with experts and a shared one."""
    return transformers.Qwen3_5MoeForCausalLM(transformers.Qwen3_5MoeTextConfig(**base(**more)))


def granite(**more):
    """Granite: llama with factors of embeddings, scores, layers' results and logits."""
    return transformers.GraniteForCausalLM(transformers.GraniteConfig(**base(**more)))


def granitemoe(**more):
    """Granite with experts, and one that all tokens go to."""
    return transformers.GraniteMoeSharedForCausalLM(transformers.GraniteMoeSharedConfig(**base(**more)))


def granitehybrid(**more):
    """Granite 4: Mamba 2 in most layers, attention without rotary embedding in the others."""
    return transformers.GraniteMoeHybridForCausalLM(transformers.GraniteMoeHybridConfig(**base(**more)))


def gemma4_model(**more):
    """Gemma 4: heads of two shapes, norms of values, keys and values that layers share, inputs that layers have of their own."""
    return gemma4.model(**base(**more))


def base(**more):
    return dict(vocab_size=VOCAB, max_position_embeddings=CONTEXT, bos_token_id=256,
                eos_token_id=257, pad_token_id=258, attn_implementation="eager",
                **more)


def rope(kind="default", theta=10000.0, **more):
    return dict(rope_type=kind, rope_theta=theta, **more)


def partial_longrope(part, original):
    """Of heads of 32."""
    pairs = range(int(32 * part) // 2)
    return rope("longrope", partial_rotary_factor=part, original_max_position_embeddings=original,
                short_factor=[1 + pair / 10 for pair in pairs], long_factor=[2 + pair / 2 for pair in pairs])


GRANITE = dict(hidden_size=64, num_attention_heads=2, num_key_value_heads=1, rms_norm_eps=1e-5,
               embedding_multiplier=12.0, attention_multiplier=0.125, residual_multiplier=0.22, logits_scaling=3.0,
               rope_parameters=rope())
MAMBA = dict(layer_types=["linear_attention", "full_attention", "linear_attention"], num_hidden_layers=3,
             mamba_n_heads=4, mamba_d_head=32, mamba_d_state=32, mamba_n_groups=1, mamba_d_conv=4)
DELTA_LAYERS = ["linear_attention", "full_attention"] * 2

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
    # As above: all three bands occur.
    "qwen3_rope_yarn": (qwen3, dict(
        hidden_size=32, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
        head_dim=32, intermediate_size=64, rms_norm_eps=1e-6, tie_word_embeddings=True,
        rope_parameters=rope("yarn", 10000.0, factor=4.0, original_max_position_embeddings=64))),
    "smollm3": (smollm3, dict(
        hidden_size=32, num_hidden_layers=5, num_attention_heads=2, num_key_value_heads=1,
        head_dim=32, intermediate_size=48, rms_norm_eps=1e-6, tie_word_embeddings=True,
        rope_parameters=rope(theta=5000000.0))),
    "gemma3": (gemma3, dict(
        hidden_size=32, num_hidden_layers=7, num_attention_heads=2, num_key_value_heads=1,
        head_dim=32, query_pre_attn_scalar=32, intermediate_size=64, rms_norm_eps=1e-6,
        tie_word_embeddings=True, hidden_activation="gelu_pytorch_tanh", sliding_window=16,
        layer_types=["sliding_attention"] * 5 + ["full_attention", "sliding_attention"],
        # The global layers' scaling is that of the 4B and larger models.
        rope_parameters=dict(sliding_attention=rope(theta=10000.0),
                             full_attention=rope("linear", 1000000.0, factor=8.0)))),
    "mixtral": (mixtral, dict(
        hidden_size=64, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=1,
        intermediate_size=48, num_local_experts=5, num_experts_per_tok=2, rms_norm_eps=1e-5,
        tie_word_embeddings=False, rope_parameters=rope(theta=1000000.0))),
    "olmoe": (olmoe, dict(
        hidden_size=64, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=2,
        intermediate_size=32, num_experts=8, num_experts_per_tok=3, norm_topk_prob=False,
        rms_norm_eps=1e-5, tie_word_embeddings=False, rope_parameters=rope())),
    "qwen2moe": (qwen2moe, dict(
        hidden_size=64, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=1,
        intermediate_size=96, moe_intermediate_size=32, shared_expert_intermediate_size=64,
        num_experts=6, num_experts_per_tok=2, norm_topk_prob=False, rms_norm_eps=1e-6,
        tie_word_embeddings=False, rope_parameters=rope(theta=1000000.0))),
    "qwen3moe": (qwen3moe, dict(
        hidden_size=64, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
        head_dim=32, intermediate_size=96, moe_intermediate_size=32, num_experts=9,
        num_experts_per_tok=3, norm_topk_prob=True, rms_norm_eps=1e-6, tie_word_embeddings=False,
        rope_parameters=rope(theta=1000000.0))),
    "phimoe": (phimoe, dict(
        hidden_size=64, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=1,
        intermediate_size=32, num_local_experts=6, num_experts_per_tok=2, rms_norm_eps=1e-5,
        tie_word_embeddings=False, attention_bias=True, lm_head_bias=True,
        rope_parameters=rope())),
    # A context that was stretched: the tokens lie in the one it was trained for first.
    "phimoe_longrope": (phimoe, dict(
        hidden_size=64, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
        head_dim=32, intermediate_size=32, num_local_experts=4, num_experts_per_tok=2,
        rms_norm_eps=1e-5, tie_word_embeddings=False, attention_bias=True, lm_head_bias=True,
        sliding_window=24, rope_parameters=rope(
            "longrope", short_factor=[1 + pair / 10 for pair in range(16)], long_factor=[9.0] * 16,
            short_mscale=1.2, long_mscale=1.2, original_max_position_embeddings=128))),
    # The tokens lie in the first context, and beyond it: then the other factors count, at every position.
    "phi3": (phi3, dict(
        hidden_size=64, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=1,
        intermediate_size=96, rms_norm_eps=1e-5, tie_word_embeddings=True, sliding_window=24,
        original_max_position_embeddings=128, rope_parameters=partial_longrope(0.75, 128))),
    "phi3_long": (phi3, dict(
        hidden_size=64, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=2,
        intermediate_size=64, rms_norm_eps=1e-5, tie_word_embeddings=False, sliding_window=None,
        original_max_position_embeddings=64, rope_parameters=partial_longrope(0.5, 64))),
    "gptoss": (gptoss, GPT_OSS := dict(
        hidden_size=64, num_hidden_layers=3, num_attention_heads=4, num_key_value_heads=2,
        head_dim=32, intermediate_size=32, num_local_experts=5, num_experts_per_tok=2,
        sliding_window=16, rms_norm_eps=1e-5, tie_word_embeddings=False, rope_parameters=rope(
            "yarn", 150000.0, factor=4.0, beta_fast=32.0, beta_slow=1.0, truncate=False,
            original_max_position_embeddings=64))),
    # The experts as its files have them.
    "gptoss_mxfp4": (gptoss, GPT_OSS),
    "glm4moe": (glm4moe, dict(
        hidden_size=64, num_hidden_layers=3, num_attention_heads=2, num_key_value_heads=1,
        head_dim=32, intermediate_size=96, moe_intermediate_size=32, n_routed_experts=5,
        n_shared_experts=1, num_experts_per_tok=2, first_k_dense_replace=1, norm_topk_prob=True,
        routed_scaling_factor=1.5, attention_bias=True, use_qk_norm=True, rms_norm_eps=1e-5,
        tie_word_embeddings=False, rope_parameters=rope(theta=1000000.0, partial_rotary_factor=0.5))),
    # GLM-4.5-Air's heads have no norms, so that its keys have a bias.
    "glm4moe_air": (glm4moe, dict(
        hidden_size=64, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=1,
        head_dim=32, intermediate_size=64, moe_intermediate_size=32, n_routed_experts=5,
        n_shared_experts=2, num_experts_per_tok=2, first_k_dense_replace=1, norm_topk_prob=True,
        routed_scaling_factor=1.0, attention_bias=True, use_qk_norm=False, rms_norm_eps=1e-5,
        tie_word_embeddings=False, rope_parameters=rope(theta=1000000.0, partial_rotary_factor=0.5))),
    "lfm2": (lfm2, dict(
        hidden_size=64, num_hidden_layers=4, num_attention_heads=2, num_key_value_heads=1,
        intermediate_size=96, norm_eps=1e-5, tie_word_embeddings=True, conv_L_cache=3,
        layer_types=["conv", "full_attention", "conv", "conv"], rope_parameters=rope(theta=1000000.0))),
    "lfm2moe": (lfm2moe, dict(
        hidden_size=64, num_hidden_layers=4, num_attention_heads=2, num_key_value_heads=1,
        intermediate_size=96, moe_intermediate_size=32, num_experts=6, num_experts_per_tok=2,
        num_dense_layers=2, norm_topk_prob=True, use_expert_bias=True, norm_eps=1e-5, conv_L_cache=3,
        layer_types=["conv", "conv", "full_attention", "conv"], tie_word_embeddings=True,
        rope_parameters=rope(theta=1000000.0))),
    "qwen3next": (qwen3next, QWEN3_NEXT := dict(
        hidden_size=64, num_hidden_layers=4, num_attention_heads=2, num_key_value_heads=1, head_dim=32,
        intermediate_size=96, moe_intermediate_size=32, shared_expert_intermediate_size=32, num_experts=4,
        num_experts_per_tok=2, norm_topk_prob=True, linear_conv_kernel_dim=4, linear_key_head_dim=16,
        linear_value_head_dim=16, linear_num_key_heads=2, linear_num_value_heads=4, rms_norm_eps=1e-6,
        layer_types=DELTA_LAYERS, tie_word_embeddings=False,
        rope_parameters=rope(theta=10000000.0, partial_rotary_factor=0.25))),
    # As files were before their queries, keys and values were told apart from their gates.
    "qwen3next_old": (qwen3next, {**QWEN3_NEXT, "num_hidden_layers": 2, "layer_types": DELTA_LAYERS[:2]}),
    "qwen35": (qwen35, dict(
        hidden_size=64, num_hidden_layers=4, num_attention_heads=2, num_key_value_heads=1, head_dim=32,
        intermediate_size=96, linear_conv_kernel_dim=4, linear_key_head_dim=16, linear_value_head_dim=16,
        linear_num_key_heads=2, linear_num_value_heads=6, rms_norm_eps=1e-6, layer_types=DELTA_LAYERS,
        tie_word_embeddings=True,
        rope_parameters=rope(theta=10000000.0, partial_rotary_factor=0.25, mrope_section=[2, 1, 1],
                             mrope_interleaved=True))),
    "qwen35moe": (qwen35moe, dict(
        hidden_size=64, num_hidden_layers=4, num_attention_heads=2, num_key_value_heads=1, head_dim=32,
        moe_intermediate_size=32, shared_expert_intermediate_size=32, num_experts=3, num_experts_per_tok=2,
        linear_conv_kernel_dim=4, linear_key_head_dim=32, linear_value_head_dim=32, linear_num_key_heads=2,
        linear_num_value_heads=4, rms_norm_eps=1e-6, layer_types=DELTA_LAYERS, tie_word_embeddings=True,
        rope_parameters=rope(theta=10000000.0, partial_rotary_factor=0.25, mrope_section=[2, 1, 1],
                             mrope_interleaved=True))),
    "granite": (granite, {**GRANITE, "num_hidden_layers": 2, "intermediate_size": 96, "tie_word_embeddings": True}),
    "granitemoe": (granitemoe, {
        **GRANITE, "num_hidden_layers": 2, "intermediate_size": 32, "shared_intermediate_size": 48,
        "num_local_experts": 5, "num_experts_per_tok": 2, "tie_word_embeddings": False}),
    "granitehybrid": (granitehybrid, {
        **GRANITE, **MAMBA, "intermediate_size": 96, "shared_intermediate_size": 96, "num_local_experts": 0,
        "num_experts_per_tok": 0, "tie_word_embeddings": True}),
    "granitehybrid_experts": (granitehybrid, {
        **GRANITE, **MAMBA, "intermediate_size": 32, "shared_intermediate_size": 48, "num_local_experts": 5,
        "num_experts_per_tok": 2, "tie_word_embeddings": False}),
    **{name: (gemma4_model, shape) for name, shape in gemma4.SHAPES.items()},
}


def as_llama_cpp(name, shape):
    """The shape as llama.cpp has it: without Phi's windows and, of a context that is stretched, with the long factors, for it
    makes contexts of 256 at least; and with the ends of YaRN's bands in whole pairs."""
    rope = shape["rope_parameters"]
    if name == "phi3":
        rope = {**rope, "short_factor": rope["long_factor"]}
        return {**shape, "sliding_window": None, "rope_parameters": rope}
    if name == "gptoss":
        return {**shape, "rope_parameters": {**rope, "truncate": True}}
    return shape


def build_model(name, shape):
    """A model with its weights; the same for every shape that has as many."""
    model = MODELS[name][0](**shape).float().eval()
    randomise(model, seed=int.from_bytes(name.encode(), "little") % 2**32)
    if name.endswith("_mxfp4"):
        round_experts(model, "MXFP4")
    return model


def logits_of(model, tokens):
    with torch.no_grad():
        return model(torch.tensor([tokens])).logits[0].numpy()


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
        shape = MODELS[name][1]
        model = build_model(name, shape)
        path = arguments.out / f"golden_{name}.gguf"
        write_gguf(model, path, "MXFP4" if name.endswith("_mxfp4") else None)
        tokens = np.random.default_rng(1).integers(0, VOCAB, TOKENS).tolist()
        logits = logits_of(model, tokens)
        record = {
            "model": path.name,
            "architecture": architecture(model.config),
            "reference": f"transformers {transformers.__version__}, f32, eager attention",
            "tokens": tokens,
            "argmax": logits.argmax(-1).tolist(),
            "rows": ROWS,
            "logits": [[float(f"{x:.7g}") for x in logits[row]] for row in ROWS],
        }
        scaling = getattr(model.config, "rope_parameters", None) or {}
        if scaling.get("rope_type") == "longrope" and TOKENS <= scaling["original_max_position_embeddings"]:
            # The context to ask for: else these are the wrong factors.
            record["context"] = scaling["original_max_position_embeddings"]
        fixture = arguments.out / f"golden_{name}.json"
        fixture.write_text(json.dumps(record, separators=(",", ":")) + "\n")
        line = f"{name:18} {path.stat().st_size + fixture.stat().st_size:7} bytes, " \
               f"logits std {logits.std():.3f}, attention spread {spread(model, tokens):.2f}"
        if library and name not in NOT_LLAMA_CPP:
            theirs = as_llama_cpp(name, shape)
            expected = logits if theirs == shape else logits_of(build_model(name, theirs), tokens)
            if name in gemma4.SHAPES:
                gemma4.round_gelu(model)
                expected = logits_of(model, tokens)
            difference = compare(library, path, tokens, expected)
            ok = difference <= TOLERANCE.get(name, TOLERANCE_DEFAULT)
            failed |= not ok
            line += f", llama.cpp max diff {difference:.2e}{'' if ok else ' TOO LARGE'}"
        print(line, flush=True)
    sys.exit(failed)


def randomise(model, seed):
    """Weights large enough that attention, norms and biases all show in the logits."""
    random = np.random.default_rng(seed)
    centred = has_centred_norms(model.config)
    gpt_oss = model.config.model_type == "gpt_oss"
    is_gemma4 = model.config.model_type == "gemma4_text"
    with torch.no_grad():
        for name, parameter in sorted(model.named_parameters()):
            own = gemma4.random_values(name, parameter.shape, random, ROUTER_SPREAD) if is_gemma4 else None
            if own is not None:
                value = own
            elif name.endswith("norm.weight"):
                # Gemma's stored weight is the distance from one, and so is Qwen3-Next's but for its delta nets'.
                far = centred and not name.endswith("linear_attn.norm.weight")
                value = random.normal(0.0 if far else 1.0, 0.2, parameter.shape)
                if is_gemma4 and name.endswith("q_norm.weight"):
                    # Nothing else scales its scores.
                    value *= 0.3
            elif name.endswith(("mlp.gate.weight", "router.weight", "feed_forward.gate.weight")):
                # Far apart: rounding should not move a token to another expert.
                value = random.normal(0.0, ROUTER_SPREAD / math.sqrt(parameter.shape[1]), parameter.shape)
            elif name.endswith("bias"):
                value = random.normal(0.0, 0.5, parameter.shape)
            elif name.endswith("sinks"):
                value = random.normal(1.0, 1.5, parameter.shape)
            elif gpt_oss and "gate_up_proj" in name:
                # Large enough that gates and values are clamped here and there.
                value = random.normal(0.0, 4.0 / math.sqrt(parameter.shape[-2]), parameter.shape)
            elif "embed_tokens" in name:
                value = random.normal(0.0, 0.2, parameter.shape)
            else:
                value = random.normal(0.0, 1.2 / math.sqrt(parameter.shape[-1]), parameter.shape)
            parameter.copy_(torch.from_numpy(value.astype(np.float32)))
        for name, buffer in sorted(model.named_buffers()):
            if name.endswith("layer_scalar"):
                buffer.copy_(torch.from_numpy(random.uniform(0.6, 1.4, buffer.shape).astype(np.float32)))
            if name.endswith(("e_score_correction_bias", "expert_bias")):
                value = random.normal(0.0, 0.5, buffer.shape)
                buffer.copy_(torch.from_numpy(value.astype(np.float32)))


def round_experts(model, kind):
    """Experts' weights as a tensor type has them, over their inputs."""
    kind = gguf.GGMLQuantizationType[kind]
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith(("experts.gate_up_proj", "experts.down_proj")):
                weights = np.ascontiguousarray(parameter.numpy().swapaxes(1, 2))
                weights = gguf.quants.dequantize(gguf.quants.quantize(weights, kind), kind)
                parameter.copy_(torch.from_numpy(np.ascontiguousarray(weights.swapaxes(1, 2))))


def write_gguf(model, path, expert_kind=None, pooling=None, more=lambda writer: None):
    config = model.config
    arch = architecture(config)
    head = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    layers = config.num_hidden_layers
    writer = gguf.GGUFWriter(path, arch)
    # llama.cpp takes a model of this name for one with a tokenizer of its own.
    writer.add_name(path.stem.replace("phi3", "phi-three"))
    writer.add_file_type(gguf.LlamaFileType.ALL_F32)
    writer.add_context_length(CONTEXT)
    writer.add_embedding_length(config.hidden_size)
    # GLM's files have a layer more, which predicts a second token.
    writer.add_block_count(layers + (arch == "glm4moe"))
    if hasattr(config, "intermediate_size") and arch != "gemma4":
        writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    if arch.startswith("lfm2") or arch == "granitehybrid":
        kinds = config.layer_types
        writer.add_head_count_kv([config.num_key_value_heads * (kind == "full_attention") for kind in kinds])
    elif arch == "gemma4":
        gemma4.write_settings(writer, config, MODELS[path.stem.removeprefix("golden_")][1])
    else:
        writer.add_head_count_kv(config.num_key_value_heads)
    if arch.startswith("lfm2"):
        writer.add_shortconv_l_cache(config.conv_L_cache)
    writer.add_layer_norm_rms_eps(getattr(config, "norm_eps", None) or config.rms_norm_eps)
    writer.add_vocab_size(VOCAB)
    if arch != "gemma4" and (head * config.num_attention_heads != config.hidden_size or arch == "gemma3"):
        writer.add_key_length(head)
        writer.add_value_length(head)
    part = config.rope_parameters.get("partial_rotary_factor") if not arch.startswith("gemma") else None
    if arch in ("llama", "smollm3") or arch.startswith("granite") or part:
        writer.add_rope_dimension_count(int(head * (part or 1)))
    if pooling:
        writer.add_pooling_type(pooling)
    if hasattr(config, "linear_num_key_heads"):
        add_delta_net(writer, config)
    if arch.startswith("granite"):
        add_granite(writer, config, arch)
    add_experts(writer, config)

    scaling = config.rope_parameters
    if arch == "gemma3":
        writer.add_sliding_window(config.sliding_window)
        # The local layers' base (10000) and the pattern (every sixth layer is global) are
        # constants of the architecture in llama.cpp's files: no key says them.
        scaling = scaling["full_attention"]
    elif arch == "gemma4":
        scaling = scaling["full_attention"]
    writer.add_rope_freq_base(scaling["rope_theta"])
    if scaling["rope_type"] == "linear":
        writer.add_rope_scaling_type(gguf.RopeScalingType.LINEAR)
        writer.add_rope_scaling_factor(scaling["factor"])
    elif scaling["rope_type"] == "yarn":
        writer.add_rope_scaling_type(gguf.RopeScalingType.YARN)
        writer.add_rope_scaling_factor(scaling["factor"])
        writer.add_rope_scaling_orig_ctx_len(scaling["original_max_position_embeddings"])
    elif scaling["rope_type"] == "longrope":
        original = scaling["original_max_position_embeddings"]
        stretched = math.sqrt(1 + math.log(CONTEXT / original) / math.log(original))
        writer.add_rope_scaling_orig_ctx_len(original)
        writer.add_rope_scaling_attn_factors(scaling.get("short_mscale", stretched))
        # Files say zero for no window.
        writer.add_sliding_window(config.sliding_window or 0)
        for which in ("short", "long"):
            writer.add_tensor(f"rope_factors_{which}.weight",
                              np.array(scaling[f"{which}_factor"], dtype=np.float32))
    elif scaling["rope_type"] == "llama3":
        writer.add_tensor("rope_freqs.weight", llama3_factors(scaling, head))

    add_tokenizer(writer)
    if arch == "gpt-oss":
        writer.add_sliding_window(config.sliding_window)
    known = {name: kind for kind, name in gguf.MODEL_ARCH_NAMES.items()}
    names = gguf.get_tensor_name_map(known[arch], layers)
    for name, parameter in model.state_dict().items():
        if name == "lm_head.weight" and config.tie_word_embeddings:
            continue
        data = parameter.numpy()
        if (arch in ("llama", "smollm3") or arch.startswith("granite")) and name.endswith(("q_proj.weight", "k_proj.weight")):
            data = interleave_halves(data, head)
        if has_centred_norms(config) and name.endswith("norm.weight") and "linear_attn" not in name:
            data = data + np.float32(1)
        if name.endswith("conv.conv.weight"):
            data = data[:, 0]
        delta = delta_tensors(name, data, config, path.stem.endswith("_old"))
        delta = delta or granite_tensors(name, data, config) or gemma4.tensors(name, data)
        for to, data in delta or expert_tensors(name, data, arch == "gpt-oss") or [(None, data)]:
            to = to or names.get_name(name, try_suffixes=(".weight", ".bias"))
            assert to, f"no GGUF name for {name}"
            data = np.ascontiguousarray(data)
            if expert_kind and to.endswith("_exps.weight"):
                kind = gguf.GGMLQuantizationType[expert_kind]
                writer.add_tensor(to, gguf.quants.quantize(data, kind), raw_dtype=kind)
            else:
                writer.add_tensor(to, data)
            if arch == "glm4moe" and to.startswith(f"blk.{layers - 1}."):
                writer.add_tensor(to.replace(f"blk.{layers - 1}.", f"blk.{layers}."), data)
    if arch == "glm4moe":
        add_next_token_layer(writer, layers, config.hidden_size)
    more(writer)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def architecture(config):
    """What GGUF calls a transformers model type."""
    kind = config.model_type.removesuffix("_text").replace("_", "")
    names = {"mixtral": "llama", "gptoss": "gpt-oss", "granitemoeshared": "granitemoe", "granitemoehybrid": "granitehybrid"}
    return names.get(kind, kind)


def add_next_token_layer(writer, layer, hidden):
    """What GLM's last layer has beside a layer's tensors. Nobody reads it."""
    writer.add_nextn_predict_layers(1)
    writer.add_tensor(f"blk.{layer}.nextn.eh_proj.weight", np.ones((hidden, 2 * hidden), dtype=np.float32))
    for norm in ("enorm", "hnorm", "shared_head_norm"):
        writer.add_tensor(f"blk.{layer}.nextn.{norm}.weight", np.ones(hidden, dtype=np.float32))


def has_centred_norms(config):
    return config.model_type == "gemma3_text" or hasattr(config, "linear_num_key_heads")


def add_delta_net(writer, config):
    writer.add_ssm_conv_kernel(config.linear_conv_kernel_dim)
    writer.add_ssm_state_size(config.linear_key_head_dim)
    writer.add_ssm_group_count(config.linear_num_key_heads)
    writer.add_ssm_time_step_rank(config.linear_num_value_heads)
    writer.add_ssm_inner_size(config.linear_value_head_dim * config.linear_num_value_heads)
    writer.add_full_attention_interval(2)
    if "mrope_section" in config.rope_parameters:
        writer.add_rope_dimension_sections([*config.rope_parameters["mrope_section"], 0])


def delta_tensors(name, data, config, old):
    """The GGUF tensors of a tensor of a delta net, else nothing. Qwen 3.5's files have the heads of values that share a key
    head not beside each other but in turns."""
    if ".linear_attn." not in name:
        return []
    layer, part = name.removeprefix("model.layers.").split(".linear_attn.")
    heads, values, keys = config.linear_num_key_heads, config.linear_num_value_heads, config.linear_key_head_dim
    each, width = values // heads, config.linear_value_head_dim

    def turns(data, dim, axis=0):
        if config.model_type == "qwen3_next":
            return data
        data = np.moveaxis(data, axis, 0)
        turned = data.reshape(heads, each, dim, *data.shape[1:]).swapaxes(0, 1).reshape(data.shape)
        return np.moveaxis(turned, 0, axis)

    def behind_keys(data):
        return np.concatenate([data[:2 * heads * keys], turns(data[2 * heads * keys:], width)])

    if part == "in_proj_qkvz.weight" and not old:
        grouped = data.reshape(heads, -1, data.shape[1])
        ends = np.cumsum([keys, keys, each * width])
        parts = [part.reshape(-1, data.shape[1]) for part in np.split(grouped, ends, axis=1)]
        tensors = [("attn_qkv.weight", np.concatenate(parts[:3])), ("attn_gate.weight", parts[3])]
    else:
        tensors = {
            "in_proj_qkvz.weight": lambda: [("ssm_in.weight", data)],
            "in_proj_ba.weight": lambda: [("ssm_ba.weight", data)],
            "in_proj_qkv.weight": lambda: [("attn_qkv.weight", behind_keys(data))],
            "in_proj_z.weight": lambda: [("attn_gate.weight", turns(data, width))],
            "in_proj_b.weight": lambda: [("ssm_beta.weight", turns(data, 1))],
            "in_proj_a.weight": lambda: [("ssm_alpha.weight", turns(data, 1))],
            "conv1d.weight": lambda: [("ssm_conv1d.weight", behind_keys(data[:, 0]))],
            "A_log": lambda: [("ssm_a", turns(-np.exp(data), 1))],
            "dt_bias": lambda: [("ssm_dt.bias", turns(data, 1))],
            "norm.weight": lambda: [("ssm_norm.weight", data)],
            "out_proj.weight": lambda: [("ssm_out.weight", turns(data, width, axis=1))],
        }[part]()
    return [(f"blk.{layer}.{to}", data) for to, data in tensors]


def add_granite(writer, config, arch):
    writer.add_attention_scale(config.attention_multiplier)
    writer.add_embedding_scale(config.embedding_multiplier)
    writer.add_residual_scale(config.residual_multiplier)
    writer.add_logit_scale(config.logits_scaling)
    if getattr(config, "num_local_experts", 0):
        writer.add_expert_shared_feed_forward_length(config.shared_intermediate_size)
    if arch == "granitehybrid":
        writer.add_ssm_conv_kernel(config.mamba_d_conv)
        writer.add_ssm_state_size(config.mamba_d_state)
        writer.add_ssm_group_count(config.mamba_n_groups)
        writer.add_ssm_inner_size(config.mamba_n_heads * config.mamba_d_head)
        writer.add_ssm_time_step_rank(config.mamba_n_heads)
        writer.add_rope_scaling_finetuned(False)


def granite_tensors(name, data, config):
    """The GGUF tensors of Granite's experts and its Mamba, else nothing."""
    if not config.model_type.startswith("granite"):
        return []
    layer, _, part = name.removeprefix("model.layers.").partition(".")
    suffix = "_shexp" if getattr(config, "num_local_experts", 0) else ""
    halves = lambda axis: np.split(data, 2, axis=axis)
    tensors = {
        "block_sparse_moe.router.weight": lambda: [("ffn_gate_inp.weight", data)],
        "block_sparse_moe.experts.gate_up_proj": lambda: [
            ("ffn_gate_exps.weight", halves(1)[0]), ("ffn_up_exps.weight", halves(1)[1])],
        "block_sparse_moe.experts.down_proj": lambda: [("ffn_down_exps.weight", data)],
        "shared_mlp.input_linear.weight": lambda: [
            (f"ffn_gate{suffix}.weight", halves(0)[0]), (f"ffn_up{suffix}.weight", halves(0)[1])],
        "shared_mlp.output_linear.weight": lambda: [(f"ffn_down{suffix}.weight", data)],
        "mamba.dt_bias": lambda: [("ssm_dt.bias", data)],
        "mamba.A_log": lambda: [("ssm_a", -np.exp(data)[:, None])],
        "mamba.D": lambda: [("ssm_d", data[:, None])],
        "mamba.conv1d.weight": lambda: [("ssm_conv1d.weight", data[:, 0])],
        "mamba.conv1d.bias": lambda: [("ssm_conv1d.bias", data)],
        "mamba.in_proj.weight": lambda: [("ssm_in.weight", data)],
        "mamba.norm.weight": lambda: [("ssm_norm.weight", data[None])],
        "mamba.out_proj.weight": lambda: [("ssm_out.weight", data)],
    }
    return [(f"blk.{layer}.{to}", data) for to, data in tensors[part]()] if part in tensors else []


def add_experts(writer, config):
    count = getattr(config, "num_experts", None) or getattr(config, "num_local_experts", None)
    if config.model_type == "gpt_oss":
        writer.add_expert_feed_forward_length(config.intermediate_size)
    if config.model_type in ("glm4_moe", "lfm2_moe"):
        writer.add_expert_gating_func(gguf.ExpertGatingFuncType.SIGMOID)
        dense = "first_k_dense_replace" if config.model_type == "glm4_moe" else "num_dense_layers"
        writer.add_leading_dense_block_count(getattr(config, dense))
    if config.model_type == "glm4_moe":
        writer.add_expert_shared_count(config.n_shared_experts)
        writer.add_expert_weights_scale(config.routed_scaling_factor)
        writer.add_expert_weights_norm(config.norm_topk_prob)
    if not count:
        return
    writer.add_expert_count(count)
    writer.add_expert_used_count(getattr(config, "num_experts_per_tok", None) or config.top_k_experts)
    if hasattr(config, "moe_intermediate_size"):
        writer.add_expert_feed_forward_length(config.moe_intermediate_size)
    if hasattr(config, "shared_expert_intermediate_size"):
        writer.add_expert_shared_feed_forward_length(config.shared_expert_intermediate_size)


def expert_tensors(name, data, gpt_oss):
    """The GGUF tensors of a tensor that belongs to experts (or to attention's sinks, which have no name there), else nothing."""
    if name.endswith(".self_attn.sinks"):
        layer = name.removeprefix("model.layers.").removesuffix(".self_attn.sinks")
        return [(f"blk.{layer}.attn_sinks.weight", data)]
    name = name.replace(".feed_forward.", ".mlp.")
    if ".mlp." not in name or "mlp.gate_proj" in name:
        return []
    layer, part = name.removeprefix("model.layers.").split(".mlp.")
    if gpt_oss and part.startswith("experts."):
        # Inputs come first here, and gates and values take turns.
        to, _, bias = part.removeprefix("experts.").partition("_proj")
        data = data if bias else data.swapaxes(1, 2)
        parts = [("gate", data[:, ::2]), ("up", data[:, 1::2])] if to == "gate_up" else [("down", data)]
        return [(f"blk.{layer}.ffn_{to}_exps.{'bias' if bias else 'weight'}", data) for to, data in parts]
    if part in ("gate.e_score_correction_bias", "expert_bias"):
        return [(f"blk.{layer}.exp_probs_b.bias", data)]
    if part == "router.bias":
        return [(f"blk.{layer}.ffn_gate_inp.bias", data)]
    if part == "experts.gate_up_proj":
        gate, up = np.split(data, 2, axis=1)
        parts = [("ffn_gate_exps", gate), ("ffn_up_exps", up)]
    elif part == "shared_expert_gate.weight":
        parts = [("ffn_gate_inp_shexp", data[0])]
    else:
        to = {
            "experts.down_proj": "ffn_down_exps",
            "gate.weight": "ffn_gate_inp",
            "router.weight": "ffn_gate_inp",
            "shared_expert.gate_proj.weight": "ffn_gate_shexp",
            "shared_expert.up_proj.weight": "ffn_up_shexp",
            "shared_expert.down_proj.weight": "ffn_down_shexp",
            "shared_experts.gate_proj.weight": "ffn_gate_shexp",
            "shared_experts.up_proj.weight": "ffn_up_shexp",
            "shared_experts.down_proj.weight": "ffn_down_shexp",
        }.get(part)
        parts = [(to, data)] if to else []
    return [(f"blk.{layer}.{to}.weight", data) for to, data in parts]


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


def tokens_of(text):
    """A text as this tokenizer has it, which spells its two control tokens out."""
    specials = {"<|bos|>": 256, "<|eos|>": 257}
    tokens = []
    for piece in re.split("(" + "|".join(map(re.escape, specials)) + ")", text):
        ids = [specials[piece]] if piece in specials else list(piece.encode())
        for index, merge in enumerate(MERGES):
            pair = [byte for part in merge.split() for byte in part.replace("Ġ", " ").encode()]
            merged = []
            for token in ids:
                merged.append(token)
                if merged[-2:] == pair:
                    merged[-2:] = [258 + index]
            ids = merged
        tokens += ids
    return tokens


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
