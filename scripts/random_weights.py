#!/usr/bin/env python3
"""A model's file with other weights: the same tokenizer, shapes and types, and so the same speed.

    random_weights.py head MODEL.gguf HEAD     what comes before the weights: a few megabytes
    random_weights.py fill HEAD OUT.gguf       the file again, with random weights of the same size

It is for measuring on a machine to which a model cannot be brought: speed does not depend on what
weights are, and equality of two devices' results does not either. Norms are one, biases small.

Needs: numpy.
"""

import argparse
import struct

import numpy as np

F32 = 0
# Of each type: weights and bytes of a block; and of its scales of half precision, where in the block they are and what they
# are, so that weights have a deviation of about 0.02 around zero.
WEIGHT = 0.02
BLOCKS = {
    2: (32, 18, {0: WEIGHT / 4.6}),
    3: (32, 20, {0: WEIGHT / 4.6, 2: -7.5 * WEIGHT / 4.6}),
    6: (32, 22, {0: WEIGHT / 9.2}),
    7: (32, 24, {0: WEIGHT / 9.2, 2: -15.5 * WEIGHT / 9.2}),
    8: (32, 34, {0: WEIGHT / 74}),
    12: (256, 144, {0: WEIGHT / 170, 2: 7.5 * WEIGHT / 170}),
    13: (256, 176, {0: WEIGHT / 340, 2: 15.5 * WEIGHT / 340}),
    14: (256, 210, {208: WEIGHT / 1370}),
}
# Those whose minima have small scales as well.
SMALL_MINIMA = (12, 13)
# Blocks of which a tensor's are drawn.
DRAWN = 1 << 14
# What names of tensors of ones have in them: norms, layers' factors, rope's.
ONES = ("norm", "layer_output_scale", "rope_freqs")
VALUES = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
STRING, ARRAY = 8, 9


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["head", "fill"])
    parser.add_argument("source")
    parser.add_argument("out")
    arguments = parser.parse_args()
    with open(arguments.source, "rb") as file:
        head = Head(file)
        file.seek(0)
        bytes_of_head = file.read(head.end)
    with open(arguments.out, "wb") as out:
        out.write(bytes_of_head)
        if arguments.what == "fill":
            fill(out, head)


class Head:
    """What a file says of its tensors: name, shape, type and place of each, and where the head ends."""

    def __init__(self, file):
        self.file, self.alignment = file, 32
        if file.read(4) != b"GGUF":
            raise SystemExit("this is no GGUF file")
        _, tensors, settings = self.read("IQQ")
        for _ in range(settings):
            name, (kind,) = self.string(), self.read("I")
            value = self.value(kind)
            if name == b"general.alignment":
                self.alignment = value
        self.tensors = [self.tensor() for _ in range(tensors)]
        self.end = file.tell()

    def read(self, layout):
        return struct.unpack("<" + layout, self.file.read(struct.calcsize("<" + layout)))

    def string(self):
        return self.file.read(self.read("Q")[0])

    def value(self, kind):
        if kind == STRING:
            return self.string()
        if kind == ARRAY:
            of, count = self.read("IQ")
            return [self.value(of) for _ in range(count)]
        return self.read(VALUES[kind])[0]

    def tensor(self):
        name, (dimensions,) = self.string().decode(), self.read("I")
        shape, (kind, offset) = self.read("Q" * dimensions), self.read("IQ")
        return name, int(np.prod(shape)), kind, offset


def fill(out, head):
    random = np.random.default_rng(1)
    drawn = {}
    start = -(-head.end // head.alignment) * head.alignment
    for name, weights, kind, offset in head.tensors:
        out.seek(start + offset)
        if kind == F32:
            ones = np.ones(weights, np.float32)
            out.write(ones if any(part in name for part in ONES) else (random.standard_normal(weights) * WEIGHT).astype(np.float32))
            continue
        if kind not in BLOCKS:
            raise SystemExit(f"{name} is of type {kind}, whose blocks are not known here")
        if kind not in drawn:
            drawn[kind] = blocks(random, kind)
        count = weights // BLOCKS[kind][0]
        # Blocks come again, from another one on in each tensor.
        first = int(random.integers(0, DRAWN))
        left = count
        while left > 0:
            some = drawn[kind][first : first + left]
            out.write(some)
            left, first = left - len(some), 0


def blocks(random, kind):
    _, size, scales = BLOCKS[kind]
    drawn = random.integers(0, 256, (DRAWN, size), np.uint8)
    if kind in SMALL_MINIMA:
        # The small scales of minima are those of weights.
        drawn[:, 8:12] = drawn[:, 4:8]
        drawn[:, 12:16] = (drawn[:, 12:16] & 15) * 17
    for at, scale in scales.items():
        drawn[:, at : at + 2] = np.array([scale], np.float16).view(np.uint8)
    return drawn


if __name__ == "__main__":
    main()
