"""The items of a workload file as lm-eval's documents, and how answers to them count.

Every line of a file is an item: its prompt is one message of a user, and ends in a cue for a short answer, which is the
reference. `DUET_WORKLOADS` is the folder of the files: nothing is fetched. With `DUET_EVAL_SHORTEST` the shortest come first.
"""

import os
import re

WORD = re.compile(r"[^\W_]+")


def items(file, **_):
    """The items of a file, as lm-eval asks for them."""
    # Not above: lm-eval pickles what is there with the functions.
    import datasets

    found = datasets.load_dataset("json", data_files={"test": os.path.join(os.environ["DUET_WORKLOADS"], file)})
    if "DUET_EVAL_SHORTEST" in os.environ:
        lengths = [len(prompt(item)) for item in found["test"]]
        found["test"] = found["test"].select(sorted(range(len(lengths)), key=lengths.__getitem__))
    return found


def prompt(document):
    """What is asked."""
    return document["messages"][-1]["content"]


def first_word(document, results):
    """Whether the answer begins with the reference: a letter, yes or no."""
    word = WORD.search(results[0])
    return {"acc": float(word is not None and word.group().lower() == document["reference"].lower())}


def names_all(document, results):
    """The share of the reference's parts that the answer names, as RULER counts."""
    parts = document["reference"].lower().split(", ")
    answer = results[0].lower()
    return {"acc": sum(part in answer for part in parts) / len(parts)}


def yes_or_no(document):
    """The place of the reference among the choices."""
    return ["no", "yes"].index(document["reference"])


def letter(document):
    """The place of the reference among the letters."""
    return "ABCD".index(document["reference"])
