// What a norm takes off a row and multiplies it with: its mean, and the inverse of its root mean square or deviation. Sixteen
// threads of a workgroup have every sixteenth value each, as the CPU's vectors have: sums are added in the same order
// (`kernels/src/rows.rs`, `simd::sum`), and have the same bits.

override COLUMNS: u32;
/// Whether the mean is taken off before: a layer norm.
override CENTRED: bool;

@group(0) @binding(0) var<storage, read> values: array<f32>;

const LANES: u32 = 16u;
var<workgroup> lanes: array<f32, LANES>;

// The sum of what the first threads have, in their registers' order. All threads come here.
fn lane_sum(thread: u32, own: f32) -> f32 {
    if (thread < LANES) {
        lanes[thread] = own;
    }
    workgroupBarrier();
    var four: array<f32, 4>;
    for (var i = 0u; i < 4u; i++) {
        four[i] = (lanes[i] + lanes[i + 8u]) + (lanes[i + 4u] + lanes[i + 12u]);
    }
    workgroupBarrier();
    return (four[0] + four[2]) + (four[1] + four[3]);
}

// Of the row whose values begin at `start`. All threads come here, and all find it.
fn moments_of(thread: u32, start: u32, epsilon: f32) -> vec2<f32> {
    let whole = COLUMNS / LANES * LANES;
    let first = select(whole, thread, thread < LANES);
    var mean = 0.0;
    if (CENTRED) {
        var own = 0.0;
        for (var i = first; i < whole; i += LANES) {
            own = own + values[start + i];
        }
        let all = lane_sum(thread, own);
        var rest = 0.0;
        for (var i = whole; i < COLUMNS; i++) {
            rest = rest + values[start + i];
        }
        mean = divided(all + rest, f32(COLUMNS));
    }
    var own = 0.0;
    for (var i = first; i < whole; i += LANES) {
        let far = values[start + i] - mean;
        own = fused(far, far, own);
    }
    let all = lane_sum(thread, own);
    var rest = 0.0;
    for (var i = whole; i < COLUMNS; i++) {
        let far = values[start + i] - mean;
        rest = rest + rounded(far * far);
    }
    return vec2<f32>(mean, divided(1.0, root(divided(all + rest, f32(COLUMNS)) + epsilon)));
}
