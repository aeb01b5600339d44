// Rows as signed bytes, a scale for every 32 values, as `kernels/src/quantize.rs` defines them; normed before where a norm
// is asked for. A workgroup has 64 groups of a row: it reads and norms their values together, and then a thread has a group.
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
const LANES: u32 = 16u;
/// From one group to the next: not a multiple of the banks that memory of a workgroup has.
const APART: u32 = GROUP + 1u;

var<workgroup> own: array<f32, TOGETHER * APART>;

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
    let group = first + thread;
    if (thread < TOGETHER && group < groups) {
        round_group(thread * APART, row * groups + group);
    }
}

// A group, whose values begin at `at`, as the group that `to` counts.
fn round_group(at: u32, to: u32) {
    // The largest magnitude by its bits, which are in the order of the values, and beyond all of them for what is no number.
    var largest = 0u;
    for (var i = 0u; i < GROUP; i++) {
        largest = max(largest, bitcast<u32>(own[at + i]) & 0x7fffffffu);
    }
    let finite = largest < 0x7f800000u;
    let by = byte_scale(largest);
    var halves = vec2<f32>();
    let quant = to * select(8u, 32u, FLOATS == 1u);
    for (var step = 0u; step < 8u; step++) {
        var word = 0u;
        for (var i = 0u; i < 4u; i++) {
            let q = select(0.0, round(own[at + step * 4u + i] * by.y), finite);
            halves[step / 4u] += q;
            if (FLOATS == 1u) {
                quants[quant + step * 4u + i] = bitcast<u32>(q);
            } else {
                word |= (u32(i32(q)) & 255u) << (i * 8u);
            }
        }
        if (FLOATS == 0u) {
            quants[quant + step] = word;
        }
    }
    scales[to] = vec4<f32>(by.x, by.x * (halves.x + halves.y), halves);
}
