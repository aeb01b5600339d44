// Scores of experts, in single precision and in the order of the CPU's registers (`kernels/src/rows.rs`, `dots`). A workgroup
// has an expert of a row.

override COLUMNS: u32;
/// From one normed row to the next.
override STRIDE: u32;
/// Experts; a gate of the one that all rows go to may come behind them.
override EXPERTS: u32;
/// Whether a bias is added to those of experts.
override BIAS: bool;

@group(0) @binding(0) var<storage, read> rows: array<f32>;
@group(0) @binding(1) var<storage, read> router: array<f32>;
@group(0) @binding(2) var<storage, read> bias: array<f32>;
@group(0) @binding(3) var<storage, read_write> scores: array<f32>;

const LANES: u32 = 16u;
var<workgroup> lanes: array<f32, LANES>;

@compute @workgroup_size(16)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_id) local: vec3<u32>,
) {
    nothing = group.z;
    let lane = local.x;
    let row = group.y * STRIDE;
    let weights = group.x * COLUMNS;
    let whole = COLUMNS / LANES * LANES;
    var own = zero();
    for (var i = lane; i < whole; i += LANES) {
        own = fused(router[weights + i], rows[row + i], own);
    }
    lanes[lane] = own;
    workgroupBarrier();
    if (lane == 0u) {
        var four: array<f32, 4>;
        for (var i = 0u; i < 4u; i++) {
            four[i] = (lanes[i] + lanes[i + 8u]) + (lanes[i + 4u] + lanes[i + 12u]);
        }
        var rest = 0.0;
        for (var i = whole; i < COLUMNS; i++) {
            rest = rest + rounded(router[weights + i] * rows[row + i]);
        }
        var score = ((four[0] + four[2]) + (four[1] + four[3])) + rest;
        if (BIAS && group.x < EXPERTS) {
            score = score + bias[group.x];
        }
        scores[group.y * groups.x + group.x] = score;
    }
}
