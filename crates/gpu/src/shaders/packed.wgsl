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

/// What a lane has of a group: a word for each bit of a quant.
struct Words {
    first: vec4<u32>,
    second: vec4<u32>,
}

// Reads them. `at` is the group's first word of the lane.
fn words_at(at: u32) -> Words {
    var words: Words;
    for (var i = 0u; i < min(BITS, 4u); i++) {
        words.first[i] = quants[at + i * LANES];
    }
    for (var i = 4u; i < BITS; i++) {
        words.second[i - 4u] = quants[at + i * LANES];
    }
    return words;
}

fn word_of(words: Words, index: u32) -> u32 {
    return select(words.second, words.first, index < 4u)[index % 4u];
}

// Which word has the lower bits of a step's quants, and which the others, if any has.
fn low_word(step: u32) -> u32 {
    switch BITS {
        case 8u: { return step; }
        case 4u, 5u, 6u: { return step / 2u; }
        default: { return step / 4u; }
    }
}

fn high_word(step: u32) -> u32 {
    switch BITS {
        case 5u: { return 4u; }
        case 6u: { return 4u + step / 4u; }
        case 3u: { return 2u; }
        default: { return low_word(step); }
    }
}

// The four quants of a step as signed bytes, without their zero point, of the words that have them.
fn four(low: u32, high: u32, step: u32) -> u32 {
    var q: u32;
    switch BITS {
        case 8u: { q = low; }
        case 4u: { q = nibbles(low, step); }
        case 5u: { q = nibbles(low, step) | (((high >> step) & 0x01010101u) << 4u); }
        case 6u: { q = nibbles(low, step) | (two_bits(high, step) << 4u); }
        case 2u: { q = two_bits(low, step); }
        default: { q = two_bits(low, step) | (((high >> step) & 0x01010101u) << 2u); }
    }
    if (TABLE != 0u) {
        return numbered(q);
    }
    if (ZERO == 0u) {
        return q;
    }
    // No byte carries into the next: quants and what is added are below 256 together.
    return (q + (128u - ZERO) * 0x01010101u) ^ 0x80808080u;
}

fn nibbles(word: u32, step: u32) -> u32 {
    return (word >> (step % 2u * 4u)) & 0x0f0f0f0fu;
}

fn two_bits(word: u32, step: u32) -> u32 {
    return (word >> (step % 4u * 2u)) & 0x03030303u;
}

// Those of a group that was read; and of one that begins at a word.
fn four_of(words: Words, step: u32) -> u32 {
    return four(word_of(words, low_word(step)), word_of(words, high_word(step)), step);
}

fn four_at(at: u32, step: u32) -> u32 {
    return four(quants[at + low_word(step) * LANES], quants[at + high_word(step) * LANES], step);
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

/// The words in which an output's scales of a group are.
struct Scales {
    /// Two of half precision, of which one is the lane's: of scales, and of minima.
    scale: u32,
    min: u32,
    /// Four bytes, of which one is the lane's: small scales of the first part, and of the second, or of the minimum.
    small: u32,
    other: u32,
}

// Reads them.
fn scales_at(panel: u32, lane: u32, group: u32) -> Scales {
    let start = panel * scale_bytes();
    var at: u32;
    if (SMALL == 0u) {
        at = start + group * head_bytes();
    } else {
        at = start + group / BLOCK * (head_bytes() + BLOCK * SMALL * LANES);
    }
    var found: Scales;
    found.scale = scales[at / 4u + lane / 2u];
    if (MIN) {
        found.min = scales[at / 4u + 8u + lane / 2u];
    }
    if (SMALL > 0u) {
        let small = (at + head_bytes() + group % BLOCK * SMALL * LANES + lane) / 4u;
        found.small = scales[small];
        if (SMALL > 1u) {
            found.other = scales[small + LANES / 4u];
        }
    }
    return found;
}

// The lane's of two of half precision.
fn half_of(word: u32, lane: u32) -> f32 {
    let both = unpack2x16float(word);
    return select(both.x, both.y, lane % 2u == 1u);
}

// Scale and minimum of a part of a group.
fn scale_of(found: Scales, lane: u32, part: u32) -> vec2<f32> {
    let d = half_of(found.scale, lane);
    var min = 0.0;
    if (MIN) {
        min = half_of(found.min, lane);
    }
    if (SMALL == 0u) {
        return vec2<f32>(d, min);
    }
    let shift = lane % 4u * 8u;
    let small = select(found.other, found.small, part == 0u) >> shift;
    if (NIBBLES) {
        return vec2<f32>(d * f32(small & 15u), min * f32((small & 255u) >> 4u));
    }
    if (SIGNED) {
        return vec2<f32>(d * f32(i32(small << 24u) >> 24u), 0.0);
    }
    return vec2<f32>(d * f32(small & 255u), min * f32((found.other >> shift) & 255u));
}

// Those of four steps.
fn sixteen_of(words: Words, quad: u32) -> vec4<u32> {
    let step = quad * 4u;
    return vec4<u32>(
        four_of(words, step),
        four_of(words, step + 1u),
        four_of(words, step + 2u),
        four_of(words, step + 3u),
    );
}

fn sixteen_at(at: u32, quad: u32) -> vec4<u32> {
    let step = quad * 4u;
    return vec4<u32>(four_at(at, step), four_at(at, step + 1u), four_at(at, step + 2u), four_at(at, step + 3u));
}

// A sum of a group's products as a float, which is exact: it is below 2^21, and the bits of 1.5 × 2^23 and an integer are those of
// their sum. GPUs convert integers at a fraction of the rate at which they add.
fn number_of(sum: i32) -> f32 {
    return bitcast<f32>(sum + 0x4b400000i) - 12582912.0;
}

// The products of sixteen quants each, added to a sum.
fn dot16(weights: vec4<u32>, row: vec4<u32>, sum: i32) -> i32 {
    return sum + dot4I8Packed(weights.x, row.x) + dot4I8Packed(weights.y, row.y) + dot4I8Packed(weights.z, row.z)
        + dot4I8Packed(weights.w, row.w);
}
