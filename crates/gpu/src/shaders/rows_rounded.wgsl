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

// All threads come here. Four values are a thread's, and then groups are: first the largest magnitudes of fours stand where
// their quants go.
fn begin_rows(thread: u32) {
    var moments = vec2<f32>(0.0, 1.0);
    if (NORMED) {
        moments = moments_of(thread, 0u, call.epsilon);
    }
    for (var step = thread; step < GROUPS * STEPS; step += WIDTH) {
        // By their bits, which are in the order of the values, and beyond all of them for what is no number.
        let sizes = bitcast<vec4<u32>>(normed(step, moments)) & vec4<u32>(0x7fffffffu);
        row_quants[step / 4u][step % 4u] = largest_of(sizes);
    }
    workgroupBarrier();
    for (var group = thread; group < GROUPS; group += WIDTH) {
        let largest = largest_of(max(row_quants[group * QUADS], row_quants[group * QUADS + 1u]));
        row_scales[group] = vec4<f32>(byte_scale(largest), select(0.0, 1.0, largest < 0x7f800000u), 0.0);
    }
    workgroupBarrier();
    for (var step = thread; step < GROUPS * STEPS; step += WIDTH) {
        let by = row_scales[step / STEPS];
        let q = select(vec4<f32>(), round(normed(step, moments) * by.y), by.z != 0.0);
        let bytes = vec4<u32>(vec4<i32>(q)) & vec4<u32>(255u);
        row_quants[step / 4u][step % 4u] = bytes.x | (bytes.y << 8u) | (bytes.z << 16u) | (bytes.w << 24u);
    }
    workgroupBarrier();
    for (var group = thread; group < GROUPS; group += WIDTH) {
        let scale = row_scales[group].x;
        let ones = vec4<u32>(0x01010101u);
        let one = f32(dot16(row_quants[group * QUADS], ones, 0i));
        let other = f32(dot16(row_quants[group * QUADS + 1u], ones, 0i));
        row_scales[group] = vec4<f32>(scale, scale * (one + other), one, other);
    }
    workgroupBarrier();
}

fn largest_of(sizes: vec4<u32>) -> u32 {
    return max(max(sizes.x, sizes.y), max(sizes.z, sizes.w));
}

fn normed(at: u32, moments: vec2<f32>) -> vec4<f32> {
    if (NORMED) {
        return fours[at] * moments.y * weight[at];
    }
    return fours[at];
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
