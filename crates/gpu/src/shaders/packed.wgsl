// Packed weights, with the bytes that the CPU's kernels read (`kernels/src/packed`): panels of sixteen outputs, groups of 32
// inputs, quants in planes. (Behind `epilogue.wgsl`.)

/// Bits of a quant.
override BITS: u32;
/// Groups of 32 inputs.
override GROUPS: u32;
/// What is taken from a quant; or 128 where quants number values of a table.
override ZERO: u32;
/// 0: none, 1: that of IQ4_NL, 2: that of MXFP4.
override TABLE: u32;
/// Whether weights have a minimum.
override MIN: bool;
/// Parts of a group that have scales of their own.
override PARTS: u32;
/// Bytes of small scales that a group has: 0, 1 or 2.
override SMALL: u32;
/// Whether two small scales are those of halves (each a byte), or of which one is the minimum's.
override NIBBLES: bool;
/// Whether small scales have a sign.
override SIGNED: bool;
/// 0: products of four bytes (`dot4I8Packed`), 1: of floats.
override FLOATS: u32;
@group(0) @binding(2) var<storage, read> quants: array<u32>;
@group(0) @binding(3) var<storage, read> scales: array<u32>;
/// Groups that share `d` and `m` in the types with 256 weights in a block.
const BLOCK: u32 = 8u;
/// `kernels/src/packed`: scales are stored in this unit.
const UNIT: f32 = 1.0 / 1024.0;
const STEPS: u32 = 8u;
/// The same four at a time.
const QUADS: u32 = 2u;

const IQ4NL = array<i32, 16>(-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113);
const MXFP4 = array<i32, 16>(0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12);

fn registers() -> u32 {
    return BITS;
}

// The four quants of a step as signed bytes, without their zero point. `at` is the group's first word of the thread's lane.
fn four(at: u32, step: u32) -> u32 {
    var q: u32;
    switch BITS {
        case 8u: { q = quants[at + step * LANES]; }
        case 4u: { q = nibbles(at, step); }
        case 5u: { q = nibbles(at, step) | (((quants[at + 4u * LANES] >> step) & 0x01010101u) << 4u); }
        case 6u: { q = nibbles(at, step) | (two_bits(at + 4u * LANES, step) << 4u); }
        case 2u: { q = two_bits(at, step); }
        default: { q = two_bits(at, step) | (((quants[at + 2u * LANES] >> step) & 0x01010101u) << 2u); }
    }
    if (TABLE != 0u) {
        return numbered(q);
    }
    // No byte carries into the next: quants and what is added are below 256 together.
    return (q + (128u - ZERO) * 0x01010101u) ^ 0x80808080u;
}

fn nibbles(at: u32, step: u32) -> u32 {
    return (quants[at + step / 2u * LANES] >> (step % 2u * 4u)) & 0x0f0f0f0fu;
}

fn two_bits(at: u32, step: u32) -> u32 {
    return (quants[at + step / 4u * LANES] >> (step % 4u * 2u)) & 0x03030303u;
}

fn numbered(q: u32) -> u32 {
    let numbers = unpack4xU8(q);
    var values: vec4<i32>;
    if (TABLE == 1u) {
        var table = IQ4NL;
        values = vec4<i32>(table[numbers.x], table[numbers.y], table[numbers.z], table[numbers.w]);
    } else {
        var table = MXFP4;
        values = vec4<i32>(table[numbers.x], table[numbers.y], table[numbers.z], table[numbers.w]);
    }
    return pack4xI8(values);
}

// A number of half precision: the `index`th from a byte that is a multiple of four.
fn half_at(byte: u32, index: u32) -> f32 {
    let both = unpack2x16float(scales[byte / 4u + index / 2u]);
    return select(both.x, both.y, index % 2u == 1u);
}

fn byte_at(byte: u32) -> u32 {
    return (scales[byte / 4u] >> (byte % 4u * 8u)) & 255u;
}

fn head_bytes() -> u32 {
    return select(32u, 64u, MIN);
}

// Bytes of the scales of a panel.
fn scale_bytes() -> u32 {
    if (SMALL == 0u) {
        return GROUPS * head_bytes();
    }
    return (GROUPS + BLOCK - 1u) / BLOCK * (head_bytes() + BLOCK * SMALL * LANES);
}

// Scale and minimum of a part of a group, for an output of a panel.
fn scale_of(panel: u32, lane: u32, group: u32, part: u32) -> vec2<f32> {
    let start = panel * scale_bytes();
    if (SMALL == 0u) {
        let head = start + group * head_bytes();
        var min = 0.0;
        if (MIN) {
            min = half_at(head + 32u, lane);
        }
        return vec2<f32>(half_at(head, lane), min);
    }
    let head = start + group / BLOCK * (head_bytes() + BLOCK * SMALL * LANES);
    let small = head + head_bytes() + group % BLOCK * SMALL * LANES + lane;
    var shared_min = 0.0;
    if (MIN) {
        shared_min = half_at(head + 32u, lane);
    }
    let d = half_at(head, lane);
    if (NIBBLES) {
        let both = byte_at(small + part * LANES);
        return vec2<f32>(d * f32(both & 15u), shared_min * f32(both >> 4u));
    }
    if (SIGNED) {
        let s = i32(byte_at(small + part * LANES) << 24u) >> 24u;
        return vec2<f32>(d * f32(s), 0.0);
    }
    return vec2<f32>(d * f32(byte_at(small)), shared_min * f32(byte_at(small + LANES)));
}

// Those of four steps.
fn sixteen(at: u32, quad: u32) -> vec4<u32> {
    let step = quad * 4u;
    return vec4<u32>(four(at, step), four(at, step + 1u), four(at, step + 2u), four(at, step + 3u));
}

// The products of sixteen quants each, added to a sum.
fn dot16(weights: vec4<u32>, row: vec4<u32>, sum: i32) -> i32 {
    return sum + dot4I8Packed(weights.x, row.x) + dot4I8Packed(weights.y, row.y) + dot4I8Packed(weights.z, row.z)
        + dot4I8Packed(weights.w, row.w);
}
