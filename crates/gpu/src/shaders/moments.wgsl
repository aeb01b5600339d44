// What a norm takes off a row and multiplies it with: its mean, and the inverse of its root mean square or deviation.
//
// A workgroup has a row, and a thread every sixteenth value, as the CPU's vectors have: sums are added in the same order
// (`kernels/src/rows.rs`, `simd::sum`), and have the same bits.

override COLUMNS: u32;
/// Whether the mean is taken off before: a layer norm.
override CENTRED: bool;

struct Call { epsilon: f32 }
var<immediate> call: Call;

@group(0) @binding(0) var<storage, read> values: array<f32>;
@group(0) @binding(1) var<storage, read_write> moments: array<vec2<f32>>;

const LANES: u32 = 16u;
var<workgroup> lanes: array<f32, LANES>;
var<workgroup> mean: f32;

// The sum of what all threads have, in the first one.
fn sum(lane: u32, own: f32) -> f32 {
    lanes[lane] = own;
    workgroupBarrier();
    var four: array<f32, 4>;
    for (var i = 0u; i < 4u; i++) {
        four[i] = (lanes[i] + lanes[i + 8u]) + (lanes[i + 4u] + lanes[i + 12u]);
    }
    workgroupBarrier();
    return (four[0] + four[2]) + (four[1] + four[3]);
}

@compute @workgroup_size(16)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_id) local: vec3<u32>) {
    let row = group.x;
    let lane = local.x;
    let start = row * COLUMNS;
    let whole = COLUMNS / LANES * LANES;
    if (CENTRED) {
        var own = 0.0;
        for (var i = lane; i < whole; i += LANES) {
            own = own + values[start + i];
        }
        let all = sum(lane, own);
        var rest = 0.0;
        for (var i = whole; i < COLUMNS; i++) {
            rest = rest + values[start + i];
        }
        if (lane == 0u) {
            mean = (all + rest) / f32(COLUMNS);
        }
    } else if (lane == 0u) {
        mean = 0.0;
    }
    workgroupBarrier();
    var own = 0.0;
    for (var i = lane; i < whole; i += LANES) {
        let far = values[start + i] - mean;
        own = fma(far, far, own);
    }
    let all = sum(lane, own);
    var rest = 0.0;
    for (var i = whole; i < COLUMNS; i++) {
        let far = values[start + i] - mean;
        rest = rest + far * far;
    }
    if (lane == 0u) {
        moments[row] = vec2<f32>(mean, 1.0 / sqrt((all + rest) / f32(COLUMNS) + call.epsilon));
    }
}
