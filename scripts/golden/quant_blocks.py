#!/usr/bin/env python3
"""Writes crates/model/tests/fixtures/quant_blocks.gguf with the reference `gguf` package.

    pip install gguf numpy
    python scripts/golden/quant_blocks.py crates/model/tests/fixtures/quant_blocks.gguf

For every tensor type that duet reads, the file holds two tensors: `<type>.blocks`, random blocks of that type, and
`<type>.weights`, the same as F32 by `gguf.quants.dequantize`, which shares no code with duet. `source` is F32 and
`<type>.quantised` the same by `gguf.quants.quantize`. There is one metadata entry of every value type. So one file checks
the decoders, the quantisers, the reader and (rewritten) the writer.

Blocks are random bytes, which reaches every bit of a layout, where quantised weights would leave some unused. Only the
half-precision scales are drawn from finite numbers, because NaN compares equal to nothing: mostly the size of real
scales, with zeros, negatives, subnormals and the largest ones among them.
"""

import sys

import gguf
import numpy as np
from gguf import GGMLQuantizationType as Type

# Per type: where its half-precision scales are in a block.
SCALES = {
    Type.Q4_0: [0],
    Type.Q4_1: [0, 2],
    Type.Q5_0: [0],
    Type.Q5_1: [0, 2],
    Type.Q8_0: [0],
    Type.Q2_K: [80, 82],
    Type.Q3_K: [108],
    Type.Q4_K: [0, 2],
    Type.Q5_K: [0, 2],
    Type.Q6_K: [208],
    Type.IQ4_NL: [0],
    Type.IQ4_XS: [0],
    Type.MXFP4: [],
}
ROWS, ROW_LEN = 3, 512
RARE = np.array([0.0, -0.0, 6e-8, -6e-8, 1.0, -1.0, 65504.0, -65504.0], dtype=np.float16)


def halves(rng: np.random.Generator, count: int) -> np.ndarray:
    usual = rng.normal(0.0, 0.02, count).astype(np.float16)
    return np.where(rng.random(count) < 0.25, rng.choice(RARE, count), usual)


def blocks(rng: np.random.Generator, kind: Type) -> np.ndarray:
    elements, size = gguf.GGML_QUANT_SIZES[kind]
    count = ROWS * ROW_LEN // elements
    if kind == Type.F32:
        return rng.normal(0.0, 1.0, count).astype(np.float32).view(np.uint8).reshape(ROWS, -1)
    if kind in (Type.F16, Type.BF16):
        bits = rng.integers(0, 1 << 16, count, dtype=np.uint16)
        exponent, mantissa = (0x7C00, 0x03FF) if kind == Type.F16 else (0x7F80, 0x007F)
        nan = ((bits & exponent) == exponent) & ((bits & mantissa) != 0)
        return np.where(nan, bits & ~np.uint16(mantissa), bits).view(np.uint8).reshape(ROWS, -1)
    raw = rng.integers(0, 256, (count, size), dtype=np.uint8)
    for at in SCALES[kind]:
        raw[:, at : at + 2] = halves(rng, count).view(np.uint8).reshape(count, 2)
    # Blocks of only the lowest and only the highest quants.
    kept = [byte for at in SCALES[kind] for byte in (at, at + 1)]
    for row, fill in ((0, 0x00), (1, 0xFF)):
        saved = raw[row, kept]
        raw[row] = fill
        raw[row, kept] = saved
    if kind == Type.MXFP4:
        # Exponents with which no weight is infinite.
        raw[:, 0] = 64 + raw[:, 0] % 97
    return raw.reshape(ROWS, -1)


def main(path: str) -> None:
    rng = np.random.default_rng(20250101)
    writer = gguf.GGUFWriter(path, arch="test")
    writer.add_uint8("value.u8", 200)
    writer.add_int8("value.i8", -100)
    writer.add_uint16("value.u16", 60000)
    writer.add_int16("value.i16", -30000)
    writer.add_uint32("value.u32", 4_000_000_000)
    writer.add_int32("value.i32", -2_000_000_000)
    writer.add_uint64("value.u64", 1 << 63)
    writer.add_int64("value.i64", -(1 << 63))
    writer.add_float32("value.f32", 0.5)
    writer.add_float64("value.f64", 1e300)
    writer.add_bool("value.bool", True)
    writer.add_string("value.string", "duet: ✓")
    writer.add_array("array.string", ["a", "", "Ġé"])
    writer.add_array("array.i32", [1, -2, 3])
    writer.add_array("array.f32", [0.0, -1.5])
    writer.add_array("array.bool", [True, False])

    for kind in [Type.F32, Type.F16, Type.BF16, *SCALES]:
        raw = blocks(rng, kind)
        weights = gguf.quants.dequantize(raw, kind)
        assert weights.shape == (ROWS, ROW_LEN) and weights.dtype == np.float32
        writer.add_tensor(f"{kind.name}.blocks", raw, raw_dtype=kind)
        writer.add_tensor(f"{kind.name}.weights", weights)

    source = rng.normal(0.0, 0.02, (ROWS, ROW_LEN)).astype(np.float32)
    source[0, :32] = 0.0
    writer.add_tensor("source", source)
    for kind in [Type.Q8_0, Type.Q4_0, Type.Q4_1]:
        writer.add_tensor(f"{kind.name}.quantised", gguf.quants.quantize(source, kind), raw_dtype=kind)

    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
