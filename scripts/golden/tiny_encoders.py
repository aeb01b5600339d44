"""Tiny random encoders with what transformers makes of some texts.

    python tiny_encoders.py OUT_DIR [NAME ...]

For each encoder this writes `golden_NAME.gguf` (F32) and `golden_NAME.json`: texts as tokens, and for each the vector (or the
score) that Hugging Face transformers computes in f32 with eager attention. Weights come from numpy's seeded generator.

Needs: torch, transformers, gguf, numpy.
"""

import json
import pathlib
import sys

import gguf
import numpy as np
import torch
import transformers

import encoder_file
import tiny_models

WORDS = ("the of and to in is was he for it with as his on be at by had not are but from or have an they which one you "
         "were her all she there would their we him been has when who will more no if out so said what up its about").split()
VOCABULARY = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS, "##s", "##ed", "##ing", "##ly",
              *"abcdefghijklmnopqrstuvwxyz", *(f"##{c}" for c in "abcdefghijklmnopqrstuvwxyz"), ".", ",", "?", "!"]
CONFIG = dict(vocab_size=len(VOCABULARY), hidden_size=48, intermediate_size=80, num_hidden_layers=2,
              num_attention_heads=3, max_position_embeddings=96, type_vocab_size=2, hidden_act="gelu",
              layer_norm_eps=1e-12, attn_implementation="eager")
# As long as one vector of positions, beyond it, and as long as may be.
LENGTHS = [3, 16, 17, 40, 96]
CLS, SEP = 2, 3


def randomise(model):
    """Weights as large as trained ones, so that softmax and norms have something to do."""
    numbers = np.random.default_rng(7)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            spread = 0.15 if weight.ndim > 1 else 0.2
            values = numbers.normal(0.0, spread, tuple(weight.shape)).astype(np.float32)
            weight.copy_(torch.from_numpy(values + (1.0 if name.endswith("LayerNorm.weight") else 0.0)))
    return model.eval()


def texts(pairs):
    """Token ids of some texts, and where the second one of a pair begins."""
    numbers = np.random.default_rng(11)
    made = []
    for length in LENGTHS:
        inner = numbers.integers(5, len(VOCABULARY), length - 2).tolist()
        tokens = [CLS, *inner, SEP]
        second = length // 3 + 1 if pairs and length > 4 else length
        if second < length:
            tokens[second - 1] = SEP
        made.append((tokens, second))
    return made


def embed(model, tokens, second, pooling):
    segments = [0] * second + [1] * (len(tokens) - second)
    with torch.no_grad():
        out = model(input_ids=torch.tensor([tokens]), token_type_ids=torch.tensor([segments]))
    if pooling == "rank":
        return [out.logits[0, 0].item()]
    rows = out.last_hidden_state[0].double()
    vector = rows.mean(0) if pooling == "mean" else rows[0]
    return (vector / vector.norm()).tolist()


def make(name, pooling, folder):
    config = transformers.BertConfig(**CONFIG, num_labels=1)
    kind = transformers.BertForSequenceClassification if pooling == "rank" else transformers.BertModel
    model = randomise(kind(config))
    tensors = {name: weight.numpy() for name, weight in model.state_dict().items()}
    encoder_file.write(folder / f"golden_{name}.gguf", config.to_dict(), tensors, VOCABULARY, pooling, name=name)
    of = [{"tokens": tokens, "second": second, "out": [float(f"{x:.9g}") for x in embed(model, tokens, second, pooling)]}
          for tokens, second in texts(pooling == "rank")]
    write_texts(folder, name, of)


def make_xlmr(name, pooling, folder):
    """XLM-R's kind, with the vocabulary of `tokenizer_unigram.json`, whose texts and their tokens are the ones that it reads: alone,
    or each beside the next."""
    fixtures = pathlib.Path(__file__).parents[2] / "crates/model/tests/fixtures"
    vocabulary = json.loads((fixtures / "tokenizer_unigram.json").read_text())
    begin, padding, end = range(3)
    config = transformers.XLMRobertaConfig(**{
        **CONFIG, "vocab_size": len(vocabulary["tokens"]), "type_vocab_size": 1, "layer_norm_eps": 1e-5}, num_labels=1,
        bos_token_id=begin, pad_token_id=padding, eos_token_id=end)
    kind = transformers.XLMRobertaForSequenceClassification if pooling == "rank" else transformers.XLMRobertaModel
    model = randomise(kind(config))
    tensors = {name: weight.numpy() for name, weight in model.state_dict().items()}
    encoder_file.write(folder / f"golden_{name}.gguf", config.to_dict(), tensors, vocabulary, pooling, name=name)
    # Two of them and their marks have to fit.
    cases = [case for case in vocabulary["cases"] if 3 < len(case["ids"]) < 40][:8]
    of = []
    for case, other in zip(cases, cases[1:]):
        tokens, beside = [begin, *case["ids"], end], {"text": case["text"]}
        second = len(tokens)
        if pooling == "rank":
            second, tokens = len(tokens) + 1, [*tokens, end, *other["ids"], end]
            beside["beside"] = other["text"]
        with torch.no_grad():
            out = model(input_ids=torch.tensor([tokens]))
        if pooling == "rank":
            made = [out.logits[0, 0].item()]
        else:
            row = out.last_hidden_state[0, 0].double()
            made = (row / row.norm()).tolist()
        of.append({"tokens": tokens, "second": second, "out": [float(f"{x:.9g}") for x in made], **beside})
    write_texts(folder, name, of)


def make_qwen3(folder):
    """A decoder whose last token says what a text is about: the model of `golden_qwen3.gguf`, with its kind of pooling."""
    build, shape = tiny_models.MODELS["qwen3"]
    model = build(**shape).float().eval()
    tiny_models.randomise(model, seed=17)
    tiny_models.write_gguf(model, folder / "golden_qwen3_last.gguf", pooling=gguf.PoolingType.LAST)
    numbers = np.random.default_rng(13)
    of = []
    for length in (1, 5, 64, 65, 130):
        tokens = numbers.integers(0, tiny_models.VOCAB, length).tolist()
        with torch.no_grad():
            last = model.model(torch.tensor([tokens])).last_hidden_state[0, -1].double()
        out = [float(f"{x:.9g}") for x in (last / last.norm()).tolist()]
        of.append({"tokens": tokens, "second": length, "out": out})
    write_texts(folder, "qwen3_last", of)


# As llama.cpp's converter writes it for Qwen3-Reranker, in other words; the tokens of the tiny vocabulary that begin and end.
RERANK = "<|bos|>judge\n<Query>: {query}\n<Document>: {document}<|eos|>\n<|bos|>answer\n"
YES, NO = 100, 200


def make_qwen3_rank(folder):
    """The same decoder asked whether a document fits a query: the score is how far the logit of "yes" is above that of "no"."""
    build, shape = tiny_models.MODELS["qwen3"]
    model = build(**shape).float().eval()
    tiny_models.randomise(model, seed=19)
    rows = model.lm_head.weight.detach().numpy()[[YES, NO]]

    def more(writer):
        writer.add_classifier_output_labels(["yes", "no"])
        writer.add_chat_template([{"name": "rerank", "template": RERANK}])
        writer.add_tensor("cls.output.weight", np.ascontiguousarray(rows))

    tiny_models.write_gguf(model, folder / "golden_qwen3_rank.gguf", pooling=gguf.PoolingType.RANK, more=more)
    numbers = np.random.default_rng(23)
    of = []
    for length in (1, 5, 64, 65, 130):
        tokens = numbers.integers(0, tiny_models.VOCAB, length).tolist()
        logits = tiny_models.logits_of(model, tokens)[-1]
        of.append({"tokens": tokens, "second": length, "out": [float(f"{logits[YES] - logits[NO]:.9g}")]})
    pairs = []
    for document in DOCUMENTS:
        tokens = tiny_models.tokens_of(RERANK.format(query=QUERY, document=document))
        yes, no = tiny_models.logits_of(model, tokens)[-1][[YES, NO]].astype(np.float64)
        # How likely "yes" is of the two.
        probability = 1 / (1 + np.exp(no - yes))
        pairs.append({"query": QUERY, "document": document, "tokens": tokens, "probability": float(f"{probability:.9g}")})
    write_texts(folder, "qwen3_rank", of, pairs=pairs)


QUERY = "who is there?"
DOCUMENTS = ["the one", "not what they said", "There will be more of the other kind, and then the end.", "caf\u00e9", "2 + 2 = 4"]


def write_texts(folder, name, of, **more):
    made = {"script": "scripts/golden/tiny_encoders.py", "reference": f"transformers {transformers.__version__}, f32",
            "texts": of, **more}
    (folder / f"golden_{name}.json").write_text(json.dumps(made) + "\n")


MODELS = {"bert_mean": "mean", "bert_cls": "cls", "bert_rank": "rank",
          "xlmr_cls": lambda folder: make_xlmr("xlmr_cls", "cls", folder),
          "xlmr_rank": lambda folder: make_xlmr("xlmr_rank", "rank", folder), "qwen3_last": make_qwen3,
          "qwen3_rank": make_qwen3_rank}


def main():
    folder, names = pathlib.Path(sys.argv[1]), sys.argv[2:] or list(MODELS)
    for name in names:
        if callable(MODELS[name]):
            MODELS[name](folder)
        else:
            make(name, MODELS[name], folder)


if __name__ == "__main__":
    main()
