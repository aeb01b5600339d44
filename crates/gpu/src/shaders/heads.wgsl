// Behind the projection: norms of query and key heads, rope, and keys and values into the pages, in the cache's own form and
// with its bits. A workgroup has a head of a row. (Behind `kv_layout.wgsl`.)

override HEADS: u32;
/// Whether query and key heads are normed.
override NORMED: bool;

struct Call {
    rows: u32,
    /// Floats of angles from one row to the next, and the first of this layer's.
    stride: u32,
    first: u32,
    epsilon: f32,
    /// Where in a page the layer begins, in words.
    layer: u32,
}
var<immediate> call: Call;

@group(0) @binding(0) var<storage, read_write> qkv: array<f32>;
// Cosines and sines.
@group(0) @binding(1) var<storage, read> angles: array<vec2<f32>>;
// Of queries, and of keys.
@group(0) @binding(2) var<storage, read> norms: array<f32>;
// Where a row's key and value go, and its position.
@group(0) @binding(3) var<storage, read> slots: array<vec2<u32>>;
// Rows share words with other positions.
@group(0) @binding(4) var<storage, read_write> pages: array<atomic<u32>>;
// `[row][keys, values][KV_HEADS][DIM]`, for the cache.
@group(0) @binding(5) var<storage, read_write> results: array<f32>;
// What keys are without, and what turns it by pages, `[page][pair]`.
@group(0) @binding(6) var<storage, read> key_bias: array<f32>;
@group(0) @binding(7) var<storage, read> page_angles: array<vec2<f32>>;

const THREADS: u32 = 64u;
const EACH: u32 = DIM_MAX / THREADS;
/// The largest number of half precision.
const HALF_MAX: f32 = 65504.0;

/// The largest and the least of every four dimensions of a value.
var<workgroup> above_of_four: array<f32, FOURS>;
var<workgroup> least_of_four: array<f32, FOURS>;
/// What sixteen threads have added up; and of groups, their scale and centre.
var<workgroup> lanes: array<f32, LANES>;
var<workgroup> scales: array<f32, GROUPS>;
var<workgroup> centres: array<f32, GROUPS>;

// A number in half precision, to the nearest, ties to even; none is beyond its largest. (WGSL leaves the rounding to the
// adapter.)
fn half_bits(x: f32) -> u32 {
    let bits = bitcast<u32>(x);
    let size = bits & 0x7fffffffu;
    // The sum's last bit counts as much as the last one of a number below the least normal one.
    let small = bitcast<u32>(rounded(bitcast<f32>(size) + 0.5)) - 0x3f000000u;
    let normal = (size - (112u << 23u) + 0xfffu + ((size >> 13u) & 1u)) >> 13u;
    return select(normal, small, size < (113u << 23u)) | ((bits >> 16u) & 0x8000u);
}

fn half_value(bits: u32) -> f32 {
    return unpack2x16float(bits).x;
}

// Puts some bits of a word into the pages.
fn put(word: u32, shift: u32, mask: u32, bits: u32) {
    atomicAnd(&pages[word], ~(mask << shift));
    atomicOr(&pages[word], (bits & mask) << shift);
}

fn put_half(at: u32, index: u32, bits: u32) {
    put(at + index / 2u, index % 2u * 16u, 0xffffu, bits);
}

// The norm of the head, in the order of the CPU's registers.
fn norm(thread: u32, is_query: bool) {
    if (thread < LANES) {
        var own = zero();
        for (var i = thread; i < DIM; i += LANES) {
            own = fused(head[i], head[i], own);
        }
        lanes[thread] = own;
    }
    workgroupBarrier();
    var four: array<f32, 4>;
    for (var i = 0u; i < 4u; i++) {
        four[i] = (lanes[i] + lanes[i + 8u]) + (lanes[i + 4u] + lanes[i + 12u]);
    }
    let sum = (four[0] + four[2]) + (four[1] + four[3]);
    let scale = divided(1.0, root(divided(sum, f32(DIM)) + call.epsilon));
    for (var i = thread; i < DIM; i += THREADS) {
        head[i] = head[i] * scale * norms[select(DIM, 0u, is_query) + i];
    }
    workgroupBarrier();
}

fn rope(thread: u32, row: u32) {
    let first = row * call.stride + call.first;
    for (var i = thread; i < PAIRS; i += THREADS) {
        let a = head[i];
        let b = head[PAIRS + i];
        let cosine = angles[first + i].x;
        let sine = angles[first + i].y;
        head[i] = rounded(a * cosine) - rounded(b * sine);
        head[PAIRS + i] = rounded(b * cosine) + rounded(a * sine);
    }
    workgroupBarrier();
}

// Takes from a key what is kept apart of it.
fn take_bias(thread: u32, kv_head: u32, position: u32) {
    let bias = kv_head * DIM;
    for (var i = thread; i < PAIRS; i += THREADS) {
        var by = page_angles[position / PAGE * PAIRS + i];
        let number = key_bias[quick_numbers() + i];
        if (number >= 0.0) {
            let more = quick_angle(u32(number), position % PAGE);
            by = vec2<f32>(
                rounded(by.x * more.x) - rounded(by.y * more.y),
                rounded(by.y * more.x) + rounded(by.x * more.y),
            );
        }
        let one = key_bias[bias + i];
        let other = key_bias[bias + PAIRS + i];
        head[i] = head[i] - (rounded(one * by.x) - rounded(other * by.y));
        head[PAIRS + i] = head[PAIRS + i] - (rounded(one * by.y) + rounded(other * by.x));
    }
    for (var i = 2u * PAIRS + thread; i < DIM; i += THREADS) {
        head[i] = head[i] - key_bias[bias + i];
    }
    workgroupBarrier();
}

// Scales, and of values of four bits centres, of the groups of the head, which go into the page as well.
fn scale_groups(thread: u32, at: u32, position: u32, is_nibbles: bool) {
    if (is_nibbles) {
        for (var four = thread; four < FOURS; four += THREADS) {
            let i = four * 4u;
            above_of_four[four] = max(max(head[i], head[i + 1u]), max(head[i + 2u], head[i + 3u]));
            least_of_four[four] = min(min(head[i], head[i + 1u]), min(head[i + 2u], head[i + 3u]));
        }
        workgroupBarrier();
    } else {
        find_largest(thread);
    }
    if (thread < GROUPS) {
        if (is_nibbles) {
            scale_nibbles(thread, at, position);
        } else {
            let half = half_bits(divided(min(largest_in(thread), HALF_MAX), 127.0 * SCALE_UNIT));
            scales[thread] = half_value(half) * SCALE_UNIT;
        }
    }
    workgroupBarrier();
}

fn scale_nibbles(group: u32, at: u32, position: u32) {
    var above = -HALF_MAX;
    var least = HALF_MAX;
    for (var i = 0u; i < GROUP / 4u; i++) {
        let four = group * (GROUP / 4u) + i;
        if (four < FOURS) {
            above = max(above, clamp(above_of_four[four], -HALF_MAX, HALF_MAX));
            least = min(least, clamp(least_of_four[four], -HALF_MAX, HALF_MAX));
        }
    }
    let half = half_bits(min(divided(above - least, 15.0 * SCALE_UNIT), HALF_MAX));
    let scale = half_value(half) * SCALE_UNIT;
    let centre = half_bits(clamp(fused(8.0, scale, least), -HALF_MAX, HALF_MAX));
    scales[group] = scale;
    centres[group] = half_value(centre);
    put_half(at + VALUE_SCALES, group * PAGE + position, half);
    put_half(at + VALUE_CENTRES, group * PAGE + position, centre);
}

fn inverse_of(group: u32) -> f32 {
    return select(0.0, divided(1.0, scales[group]), scales[group] > 0.0);
}

// A number of the head in eight bits.
fn byte_of(i: u32) -> u32 {
    let scaled = round(head[i] * inverse_of(i / GROUP));
    return u32(i32(clamp(scaled, -127.0, 127.0))) & 255u;
}

fn put_scales(thread: u32, at: u32, position: u32) {
    if (thread < GROUPS) {
        put_half(at, thread * PAGE + position, half_bits(scales[thread] / SCALE_UNIT));
    }
}

fn store_key(thread: u32, at: u32, position: u32) {
    let block = position / LANES * DIM;
    let column = position % LANES;
    if (FORMAT == 0u) {
        for (var d = thread; d < DIM; d += THREADS) {
            put_half(at, (block + d) * LANES + column, half_bits(clamp(head[d], -HALF_MAX, HALF_MAX)));
        }
        return;
    }
    turn(thread);
    scale_groups(thread, at, position, false);
    put_scales(thread, at + KEY_SCALES, position);
    for (var quad = thread; quad < DIM / 4u; quad += THREADS) {
        var word = 0u;
        for (var i = 0u; i < 4u; i++) {
            word |= byte_of(quad * 4u + i) << (i * 8u);
        }
        atomicStore(&pages[at + block * 4u + quad * LANES + column], word);
    }
}

fn store_value(thread: u32, at: u32, position: u32) {
    let quad = position / 4u;
    let shift = position % 4u * 8u;
    if (FORMAT == 0u) {
        for (var d = thread; d < DIM; d += THREADS) {
            put_half(at + VALUES, position * DIM + d, half_bits(clamp(head[d], -HALF_MAX, HALF_MAX)));
        }
        return;
    }
    turn(thread);
    if (FORMAT == 1u) {
        scale_groups(thread, at, position, false);
        put_scales(thread, at + VALUE_SCALES, position);
        for (var d = thread; d < DIM; d += THREADS) {
            put(at + VALUES + quad * DIM + d, shift, 255u, byte_of(d));
        }
        return;
    }
    scale_groups(thread, at, position, true);
    for (var d = thread; d < DIM; d += THREADS) {
        let group = d / GROUP;
        let above = head[d] - centres[group];
        let scaled = round(fused(above, inverse_of(group), 8.0));
        let nibble = u32(i32(clamp(scaled, 0.0, 15.0)));
        let word = at + VALUES + (quad * GROUPS + group) * LANES + d % LANES;
        put(word, shift + d % GROUP / LANES * 4u, 15u, nibble);
    }
}

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group_id: vec3<u32>, @builtin(local_invocation_id) local: vec3<u32>) {
    nothing = group_id.z;
    let which = group_id.x;
    let row = group_id.y;
    let thread = local.x;
    let at = (row * (HEADS + 2u * KV_HEADS) + which) * DIM;
    for (var i = thread; i < DIM; i += THREADS) {
        head[i] = qkv[at + i];
    }
    workgroupBarrier();
    let side = select(0u, (which - HEADS) / KV_HEADS, which >= HEADS);
    if (side == 0u) {
        if (NORMED) {
            norm(thread, which < HEADS);
        }
        rope(thread, row);
        for (var i = thread; i < DIM; i += THREADS) {
            qkv[at + i] = head[i];
        }
    }
    if (which < HEADS) {
        return;
    }
    let kv_head = (which - HEADS) % KV_HEADS;
    let result = ((row * 2u + side) * KV_HEADS + kv_head) * DIM;
    for (var i = thread; i < DIM; i += THREADS) {
        results[result + i] = head[i];
    }
    let slot = slots[row].x;
    let page = page_of(slot, kv_head);
    if (side == 0u) {
        if (BIASED) {
            // Results have been read.
            workgroupBarrier();
            take_bias(thread, kv_head, slots[row].y);
        }
        store_key(thread, page, slot % PAGE);
    } else {
        store_value(thread, page, slot % PAGE);
    }
}
