// Rows as signed bytes, a scale for every 32 values, as `kernels/src/quantize.rs` defines them; normed before where a norm
// is asked for. A workgroup has 64 groups of a row: it reads and norms their values together, and then four threads have a group.
// (Behind `row_moments.wgsl`.)

/// Whether rows are normed: where they are centred, with a bias.
override NORMED: bool;
/// 0: quants are four bytes in a word; 1: each is a float, which products by floats read; 2: values are not rounded, for
/// matrices of floats.
override FLOATS: u32;

struct Call { epsilon: f32 }
var<immediate> call: Call;

@group(0) @binding(0) var<storage, read> values: array<f32>;
@group(0) @binding(1) var<storage, read> weight: array<f32>;
@group(0) @binding(2) var<storage, read> bias: array<f32>;
// `[row][group][8]` words, or `[row][group][32]` floats.
@group(0) @binding(3) var<storage, read_write> quants: array<u32>;
// `[row][group]`: the scale, scale × sum, and the sums of the halves.
@group(0) @binding(4) var<storage, read_write> scales: array<vec4<f32>>;

const GROUP: u32 = 32u;
const TOGETHER: u32 = 64u;
const THREADS: u32 = 256u;
/// Threads of a group, and values that each has of it: two words.
const SHARERS: u32 = THREADS / TOGETHER;
const SHARE: u32 = GROUP / SHARERS;
const LANES: u32 = 16u;
/// From one group to the next: not a multiple of the banks that memory of a workgroup has.
const APART: u32 = GROUP + 1u;

var<workgroup> own: array<f32, TOGETHER * APART>;
var<workgroup> sizes: array<u32, THREADS>;
var<workgroup> sums: array<f32, THREADS>;

fn threads() -> u32 {
    return THREADS;
}

fn normed(x: f32, moments: vec2<f32>, column: u32) -> f32 {
    if (!NORMED) {
        return x;
    }
    if (CENTRED) {
        return rounded((x - moments.x) * moments.y * weight[column]) + bias[column];
    }
    return x * moments.y * weight[column];
}

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) id: vec3<u32>, @builtin(local_invocation_id) local: vec3<u32>) {
    nothing = id.z;
    let groups = (COLUMNS + GROUP - 1u) / GROUP;
    let row = id.y;
    let thread = local.x;
    var moments = vec2<f32>(0.0, 1.0);
    if (NORMED) {
        moments = moments_of(thread, row * COLUMNS, call.epsilon);
    }
    let first = id.x * TOGETHER;
    let end = min(groups - first, TOGETHER) * GROUP;
    for (var i = thread; i < end; i += THREADS) {
        let column = first * GROUP + i;
        var x = 0.0;
        if (column < COLUMNS) {
            x = normed(values[row * COLUMNS + column], moments, column);
        }
        own[i / GROUP * APART + i % GROUP] = x;
        if (FLOATS == 2u) {
            quants[row * groups * GROUP + column] = bitcast<u32>(x);
        }
    }
    if (FLOATS == 2u) {
        return;
    }
    workgroupBarrier();
    let begin = thread / SHARERS * APART + thread % SHARERS * SHARE;
    sizes[thread] = largest_of(begin);
    workgroupBarrier();
    let largest = largest_in_group(thread);
    let by = byte_scale(largest);
    let group = first + thread / SHARERS;
    if (group < groups) {
        sums[thread] = round_share(begin, row * groups + group, thread % SHARERS, by.y);
    }
    workgroupBarrier();
    if (group < groups && thread % SHARERS == 0u) {
        let halves = vec2<f32>(sums[thread] + sums[thread + 1u], sums[thread + 2u] + sums[thread + 3u]);
        scales[row * groups + group] = vec4<f32>(by.x, by.x * (halves.x + halves.y), halves);
    }
}

const_assert SHARERS == 4u && SHARE == 8u;

// The largest magnitude of a thread's share, which begins at `begin`, by its bits, which are in the order of the values, and
// beyond all of them for what is no number.
fn largest_of(begin: u32) -> u32 {
    var largest = 0u;
    for (var i = 0u; i < SHARE; i++) {
        largest = max(largest, bitcast<u32>(own[begin + i]) & 0x7fffffffu);
    }
    return largest;
}

fn largest_in_group(thread: u32) -> u32 {
    let first = thread / SHARERS * SHARERS;
    return max(max(sizes[first], sizes[first + 1u]), max(sizes[first + 2u], sizes[first + 3u]));
}

// A thread's share of the group that `group` counts, and the sum of its quants: small integers, exact in any order. Without
// an inverse they are zero, whatever the values are.
fn round_share(begin: u32, group: u32, share: u32, inverse: f32) -> f32 {
    var sum = 0.0;
    for (var step = 0u; step < SHARE / 4u; step++) {
        var word = 0u;
        for (var i = 0u; i < 4u; i++) {
            let at = step * 4u + i;
            let q = select(0.0, round(own[begin + at] * inverse), inverse != 0.0);
            sum += q;
            if (FLOATS == 1u) {
                quants[(group * SHARERS + share) * SHARE + at] = bitcast<u32>(q);
            } else {
                word |= (u32(i32(q)) & 255u) << (i * 8u);
            }
        }
        if (FLOATS == 0u) {
            quants[(group * SHARERS + share) * (SHARE / 4u) + step] = word;
        }
    }
    return sum;
}
