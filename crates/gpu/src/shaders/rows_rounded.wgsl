// One row that packed weights are multiplied with, normed and rounded by each workgroup for itself: for one row that is sooner done
// than a launch before. As `quantize.wgsl` does it, to the bit. (Behind `row_moments.wgsl` and `packed.wgsl`.)

/// Whether the row is normed.
override NORMED: bool;
/// Sixteens of quants that the row has.
override ROW_QUADS: u32;

// The row, float by float and four at a time, and the norm's weight.
@group(0) @binding(4) var<storage, read> values: array<f32>;
@group(0) @binding(5) var<storage, read> fours: array<vec4<f32>>;
@group(0) @binding(6) var<storage, read> weight: array<vec4<f32>>;
@group(0) @binding(7) var<storage, read> routes: array<u32>;

var<workgroup> row_quants: array<vec4<u32>, ROW_QUADS>;
var<workgroup> row_scales: array<vec4<f32>, GROUPS>;

fn threads() -> u32 {
    return WIDTH;
}

// All threads come here.
fn begin_rows(thread: u32) {
    var moments = vec2<f32>(0.0, 1.0);
    if (NORMED) {
        moments = moments_of(thread, 0u, call.epsilon);
    }
    for (var group = thread; group < GROUPS; group += WIDTH) {
        round_group(group, moments);
    }
    workgroupBarrier();
}

fn normed(at: u32, moments: vec2<f32>) -> vec4<f32> {
    if (NORMED) {
        return fours[at] * moments.y * weight[at];
    }
    return fours[at];
}

fn round_group(group: u32, moments: vec2<f32>) {
    var own: array<vec4<f32>, STEPS>;
    // The largest magnitude by its bits, which are in the order of the values, and beyond all of them for what is no number.
    var largest_of = vec4<u32>();
    for (var step = 0u; step < STEPS; step++) {
        own[step] = normed(group * STEPS + step, moments);
        largest_of = max(largest_of, bitcast<vec4<u32>>(own[step]) & vec4<u32>(0x7fffffffu));
    }
    let largest = max(max(largest_of.x, largest_of.y), max(largest_of.z, largest_of.w));
    let finite = largest < 0x7f800000u;
    let by = byte_scale(largest);
    var halves = vec2<f32>();
    for (var quad = 0u; quad < QUADS; quad++) {
        var words = vec4<u32>();
        for (var step = 0u; step < 4u; step++) {
            let q = select(vec4<f32>(), round(own[quad * 4u + step] * by.y), finite);
            halves[quad] += q.x + q.y + q.z + q.w;
            let bytes = vec4<u32>(vec4<i32>(q)) & vec4<u32>(255u);
            words[step] = bytes.x | (bytes.y << 8u) | (bytes.z << 16u) | (bytes.w << 24u);
        }
        row_quants[group * QUADS + quad] = words;
    }
    row_scales[group] = vec4<f32>(by.x, by.x * (halves.x + halves.y), halves);
}

fn row_quad(group: u32, quad: u32) -> vec4<u32> {
    return row_quants[group * QUADS + quad];
}

fn row_floats(group: u32, step: u32) -> vec4<f32> {
    return vec4<f32>(unpack4xI8(row_quants[group * QUADS + step / 4u][step % 4u]));
}

fn row_scale(group: u32) -> vec4<f32> {
    return row_scales[group];
}
