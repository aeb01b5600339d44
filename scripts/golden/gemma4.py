"""Gemma 4 for `tiny_models.py`: shapes, and what its files say beside what all files do."""

import gguf
import numpy as np
import torch
import transformers
from torch.nn import functional

ROPES = dict(sliding_attention=dict(rope_type="default", rope_theta=10000.0),
             full_attention=dict(rope_type="proportional", partial_rotary_factor=0.25, rope_theta=1000000.0))
COMMON = dict(hidden_size=32, num_attention_heads=2, head_dim=32, global_head_dim=64, rms_norm_eps=1e-6,
              tie_word_embeddings=True, hidden_activation="gelu_pytorch_tanh", sliding_window=16,
              vocab_size_per_layer_input=260, final_logit_softcapping=3.0, rope_parameters=ROPES)

SHAPES = {
    # As E2B and E4B: inputs of layers, keys and values of earlier layers, wider blocks where these are read.
    "gemma4": dict(
        COMMON, num_hidden_layers=6, num_key_value_heads=1, intermediate_size=64, use_double_wide_mlp=True,
        hidden_size_per_layer_input=32, num_kv_shared_layers=2,
        layer_types=["sliding_attention", "full_attention"] * 3),
    # As 31B: values that are keys before their norm, in layers that see everything, which have fewer key heads.
    "gemma4_dense": dict(
        COMMON, num_hidden_layers=4, num_key_value_heads=2, num_global_key_value_heads=1, attention_k_eq_v=True,
        intermediate_size=64, hidden_size_per_layer_input=0, num_kv_shared_layers=0,
        layer_types=["sliding_attention"] * 2 + ["full_attention"] * 2),
    # As 26B-A4B: the same, with experts beside each layer's block.
    "gemma4_experts": dict(
        COMMON, num_hidden_layers=3, num_key_value_heads=2, num_global_key_value_heads=1, attention_k_eq_v=True,
        intermediate_size=64, hidden_size_per_layer_input=0, num_kv_shared_layers=0, enable_moe_block=True,
        num_experts=5, top_k_experts=2, moe_intermediate_size=32,
        layer_types=["sliding_attention"] * 2 + ["full_attention"]),
}


def model(**config):
    config = transformers.Gemma4TextConfig(**config)
    # What layers with a window have, where layers differ.
    config.allow_global_per_layer_attribute_access = True
    return transformers.Gemma4ForCausalLM(config)


class TableGelu(torch.nn.Module):
    """GELU as llama.cpp has it: a table from half precision to half precision."""

    def forward(self, x):
        rounded = functional.gelu(x.half().float(), approximate="tanh").half().float()
        return torch.where(x.abs() < 10, rounded, x.clamp(min=0))


def random_values(name, shape, random, router_spread):
    """What is random in another way than its like in other models, else nothing."""
    if name.endswith(("layernorm_1.weight", "layernorm_2.weight", "router.scale")):
        return random.normal(1.0, 0.2, shape)
    if name.endswith("router.per_expert_scale"):
        return random.uniform(0.5, 1.5, shape)
    if name.endswith("router.proj.weight"):
        # What it sees is divided by the root of its width once more.
        return random.normal(0.0, router_spread, shape)
    return None


def round_gelu(model):
    for module in model.modules():
        if hasattr(module, "act_fn"):
            module.act_fn = TableGelu()


def of_layers(config, shape):
    """Whether each layer has a window, its key heads and the width of its block."""
    windowed = [kind == "sliding_attention" for kind in config.layer_types]
    own = config.num_hidden_layers - config.num_kv_shared_layers
    double = [config.use_double_wide_mlp and layer >= own for layer in range(config.num_hidden_layers)]
    wide = shape.get("num_global_key_value_heads") or config.num_key_value_heads
    return (windowed, [config.num_key_value_heads if narrow else wide for narrow in windowed],
            [config.intermediate_size * (1 + doubled) for doubled in double])


def write_settings(writer, config, shape):
    windowed, kv_heads, ffns = of_layers(config, shape)
    head, wide = config.head_dim, shape["global_head_dim"]
    writer.add_feed_forward_length(ffns)
    writer.add_head_count_kv(kv_heads)
    writer.add_shared_kv_layers(config.num_kv_shared_layers)
    writer.add_embedding_length_per_layer_input(config.hidden_size_per_layer_input)
    writer.add_sliding_window_pattern(windowed)
    writer.add_sliding_window(config.sliding_window)
    writer.add_key_length(wide)
    writer.add_value_length(wide)
    writer.add_key_length_swa(head)
    writer.add_value_length_swa(head)
    writer.add_rope_dimension_count(wide)
    writer.add_rope_dimension_count_swa(head)
    writer.add_rope_freq_base_swa(ROPES["sliding_attention"]["rope_theta"])
    writer.add_final_logit_softcapping(config.final_logit_softcapping)
    # Of all pairs of a wide head, those that are not turned are slowed down until they stand still.
    turned = int(wide * ROPES["full_attention"]["partial_rotary_factor"] / 2)
    factors = np.array([1.0] * turned + [1e30] * (wide // 2 - turned), dtype=np.float32)
    writer.add_tensor("rope_freqs.weight", factors)


NAMES = {
    "layer_scalar": "layer_output_scale.weight",
    "router.scale": "ffn_gate_inp.scale",
    "router.per_expert_scale": "ffn_down_exps.scale",
    "experts.gate_up_proj": "ffn_gate_up_exps.weight",
    "experts.down_proj": "ffn_down_exps.weight",
}


def tensors(name, data):
    """What a tensor is called that llama.cpp's map knows under no name with a suffix."""
    layer, _, part = name.removeprefix("model.layers.").partition(".")
    return [(f"blk.{layer}.{NAMES[part]}", data)] if part in NAMES else []
