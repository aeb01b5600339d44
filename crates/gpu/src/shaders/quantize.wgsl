// Rows as signed bytes, a scale for every 32 values, as `kernels/src/quantize.rs` defines them; normed before where a norm
// is asked for. A thread has a group of a row.

override COLUMNS: u32;
/// 0: as they are, 1: by the root mean square, 2: by the deviation, with a bias.
override NORM: u32;
/// 0: quants are four bytes in a word; 1: each is a float, which products by floats read; 2: values are not rounded, for
/// matrices of floats.
override FLOATS: u32;
/// From one row of values to the next.
override STRIDE: u32;

@group(0) @binding(0) var<storage, read> values: array<f32>;
@group(0) @binding(1) var<storage, read> moments: array<vec2<f32>>;
@group(0) @binding(2) var<storage, read> weight: array<f32>;
@group(0) @binding(3) var<storage, read> bias: array<f32>;
// `[row][group][8]` words, or `[row][group][32]` floats.
@group(0) @binding(4) var<storage, read_write> quants: array<u32>;
// `[row][group]`: the scale, scale × sum, and the sums of the halves.
@group(0) @binding(5) var<storage, read_write> scales: array<vec4<f32>>;

const GROUP: u32 = 32u;

@compute @workgroup_size(32)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    let groups = (COLUMNS + GROUP - 1u) / GROUP;
    let group = id.x;
    let row = id.y;
    if (group >= groups) {
        return;
    }
    var own: array<f32, 32>;
    // The largest magnitude by its bits, which are in the order of the values, and beyond all of them for what is no number.
    var largest = 0u;
    for (var i = 0u; i < GROUP; i++) {
        let column = group * GROUP + i;
        var x = 0.0;
        if (column < COLUMNS) {
            x = values[row * STRIDE + column];
            if (NORM == 1u) {
                x = x * moments[row].y * weight[column];
            } else if (NORM == 2u) {
                x = (x - moments[row].x) * moments[row].y * weight[column] + bias[column];
            }
        }
        own[i] = x;
        if (FLOATS == 2u) {
            quants[(row * groups + group) * GROUP + i] = bitcast<u32>(x);
        }
        largest = max(largest, bitcast<u32>(x) & 0x7fffffffu);
    }
    if (FLOATS == 2u) {
        return;
    }
    var scale = 0.0;
    var inverse = 0.0;
    let finite = largest < 0x7f800000u;
    if (finite && largest > 0u) {
        let greatest = bitcast<f32>(largest);
        let by = 127.0 / greatest;
        if (bitcast<u32>(by) < 0x7f800000u) {
            scale = greatest / 127.0;
            inverse = by;
        }
    }
    var halves = vec2<f32>();
    let at = (row * groups + group) * select(8u, 32u, FLOATS == 1u);
    for (var step = 0u; step < 8u; step++) {
        var word = 0u;
        for (var i = 0u; i < 4u; i++) {
            let q = select(0.0, round(own[step * 4u + i] * inverse), finite);
            halves[step / 4u] += q;
            if (FLOATS == 1u) {
                quants[at + step * 4u + i] = bitcast<u32>(q);
            } else {
                word |= (u32(i32(q)) & 255u) << (i * 8u);
            }
        }
        if (FLOATS == 0u) {
            quants[at + step] = word;
        }
    }
    if (!finite) {
        scale = bitcast<f32>(largest | 0x7fc00000u);
    }
    scales[row * groups + group] = vec4<f32>(scale, scale * (halves.x + halves.y), halves);
}
