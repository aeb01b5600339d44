"""Writes BERTs as GGUF files, with the names and conventions of llama.cpp's converter.

    python encoder_file.py MODEL_DIR OUT.gguf [--type f32|f16|q8_0] [--name NAME] [--pooling mean|cls]

MODEL_DIR is a model of transformers or sentence-transformers: `config.json`, `model.safetensors`, `tokenizer.json`, and
`1_Pooling/config.json` where nothing else says how rows are pooled. `write` does it for a model in memory.

Needs: gguf, numpy, safetensors.
"""

import argparse
import base64
import json
import pathlib

import gguf
import numpy as np

TYPES = {"f32": gguf.GGMLQuantizationType.F32, "f16": gguf.GGMLQuantizationType.F16,
         "q8_0": gguf.GGMLQuantizationType.Q8_0}
POOLINGS = {"mean": gguf.PoolingType.MEAN, "cls": gguf.PoolingType.CLS, "rank": gguf.PoolingType.RANK}
EMBEDDINGS = {"word_embeddings.weight": "token_embd.weight", "position_embeddings.weight": "position_embd.weight",
              "token_type_embeddings.weight": "token_types.weight", "LayerNorm.weight": "token_embd_norm.weight",
              "LayerNorm.bias": "token_embd_norm.bias"}
LAYER = {"attention.self.query": "attn_q", "attention.self.key": "attn_k", "attention.self.value": "attn_v",
         "attention.output.dense": "attn_output", "attention.output.LayerNorm": "attn_output_norm",
         "intermediate.dense": "ffn_up", "output.dense": "ffn_down", "output.LayerNorm": "layer_output_norm"}
# A cross-encoder's: a layer over the first row, and one number of it.
HEAD = {"pooler.dense": "cls", "classifier": "cls.output", "classifier.dense": "cls", "classifier.out_proj": "cls.output"}


def write(path, config, tensors, vocabulary, pooling, kind="f32", name=None):
    """`tensors` are numpy arrays by transformers' names, `vocabulary` tokens in the order of their ids; of XLM-R what
    `unigram.laid_out` says of them."""
    writer = gguf.GGUFWriter(str(path), "bert")
    if name:
        writer.add_name(name)
    # XLM-R's positions begin behind that of padding.
    unused = config["pad_token_id"] + 1 if config["model_type"] == "xlm-roberta" else 0
    writer.add_context_length(config["max_position_embeddings"] - unused)
    writer.add_embedding_length(config["hidden_size"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_layer_norm_eps(config["layer_norm_eps"])
    writer.add_causal_attention(False)
    writer.add_pooling_type(POOLINGS[pooling])
    add = add_unigrams if config["model_type"] == "xlm-roberta" else add_vocabulary
    add(writer, vocabulary, config.get("type_vocab_size", 1))
    for tensor, values in tensors.items():
        place = place_of(tensor, pooling)
        if place:
            values = values[unused:] if place == "position_embd.weight" else values
            add_tensor(writer, place, np.ascontiguousarray(values, dtype=np.float32), TYPES[kind])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def add_vocabulary(writer, vocabulary, segments):
    control = {"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"}
    normal = int(gguf.TokenType.NORMAL)
    writer.add_tokenizer_model("bert")
    writer.add_tokenizer_pre("default")
    writer.add_token_list([token if token in control else token[2:] if token.startswith("##") else "▁" + token
                           for token in vocabulary])
    writer.add_token_types([int(gguf.TokenType.CONTROL) if token in control else normal for token in vocabulary])
    writer.add_token_type_count(segments)
    ids = {token: index for index, token in enumerate(vocabulary)}
    writer.add_bos_token_id(ids["[CLS]"])
    writer.add_sep_token_id(ids["[SEP]"])
    writer.add_eos_token_id(ids["[SEP]"])
    writer.add_unk_token_id(ids["[UNK]"])
    if "[PAD]" in ids:
        writer.add_pad_token_id(ids["[PAD]"])


def add_unigrams(writer, vocabulary, segments):
    writer.add_tokenizer_model("t5")
    writer.add_tokenizer_pre("default")
    writer.add_token_list(vocabulary["tokens"])
    writer.add_token_scores(vocabulary["scores"])
    writer.add_token_types(vocabulary["types"])
    writer.add_add_space_prefix(True)
    writer.add_token_type_count(segments)
    writer.add_remove_extra_whitespaces(True)
    writer.add_precompiled_charsmap(base64.b64decode(vocabulary["charsmap"]))
    ids = {token: index for index, token in enumerate(vocabulary["tokens"])}
    writer.add_bos_token_id(ids["<s>"])
    writer.add_eos_token_id(ids["</s>"])
    writer.add_unk_token_id(ids["<unk>"])
    writer.add_sep_token_id(ids["</s>"])
    writer.add_pad_token_id(ids["<pad>"])
    writer.add_add_bos_token(True)
    writer.add_add_eos_token(True)


def place_of(tensor, pooling):
    """A tensor's name in the file; nothing if it has no place there."""
    tensor = tensor.removeprefix("bert.").removeprefix("roberta.").removeprefix("model.")
    if tensor.startswith("embeddings."):
        return EMBEDDINGS.get(tensor.removeprefix("embeddings."))
    if tensor.startswith("encoder.layer."):
        layer, rest = tensor.removeprefix("encoder.layer.").split(".", 1)
        part, suffix = rest.rsplit(".", 1)
        return f"blk.{layer}.{LAYER[part]}.{suffix}"
    part, _, suffix = tensor.rpartition(".")
    return f"{HEAD[part]}.{suffix}" if pooling == "rank" and part in HEAD else None


def add_tensor(writer, name, values, kind):
    # Vectors, and the small tables that are added up with the embeddings, stay as they are.
    keeps = values.ndim == 1 or name in ("position_embd.weight", "token_types.weight") or name.startswith("cls.")
    kind = TYPES["f32"] if keeps else kind
    if kind == TYPES["f32"]:
        writer.add_tensor(name, values)
    else:
        writer.add_tensor(name, gguf.quants.quantize(values, kind), raw_dtype=kind)


def pooling_of(folder):
    """As a model of sentence-transformers says it."""
    file = folder / "1_Pooling/config.json"
    settings = json.loads(file.read_text()) if file.exists() else {}
    return "cls" if settings.get("pooling_mode_cls_token") else "mean"


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("folder", type=pathlib.Path)
    arguments.add_argument("out", type=pathlib.Path)
    arguments.add_argument("--type", choices=TYPES, default="f16")
    arguments.add_argument("--name")
    arguments.add_argument("--pooling", choices=POOLINGS)
    arguments = arguments.parse_args()
    from safetensors.numpy import load_file
    config = {"model_type": "bert", **json.loads((arguments.folder / "config.json").read_text())}
    tokens = json.loads((arguments.folder / "tokenizer.json").read_text())["model"]["vocab"]
    write(arguments.out, config, load_file(arguments.folder / "model.safetensors"), sorted(tokens, key=tokens.get),
          arguments.pooling or pooling_of(arguments.folder), arguments.type, arguments.name or arguments.folder.name)


if __name__ == "__main__":
    main()
