// Products of matrices of floats with rows that are not rounded, in the order of the inputs, as
// `kernels/src/matmul/floats.rs` has them. (Behind `epilogue.wgsl`.)

/// Groups of 32 inputs.
override GROUPS: u32;
/// 32: floats; 16: of half precision; 17: the upper halves of floats.
override BITS: u32;

@group(0) @binding(2) var<storage, read> weights: array<u32>;
@group(0) @binding(3) var<storage, read> rows: array<f32>;
@group(0) @binding(4) var<storage, read> routes: array<u32>;

const GROUP: u32 = 32u;

// The weight of an input: `at` counts weights.
fn weight(at: u32) -> f32 {
    if (BITS == 32u) {
        return bitcast<f32>(weights[at]);
    }
    let both = weights[at / 2u];
    if (BITS == 17u) {
        return bitcast<f32>(select(both << 16u, both & 0xffff0000u, at % 2u == 1u));
    }
    let halves = unpack2x16float(both);
    return select(halves.x, halves.y, at % 2u == 1u);
}

@compute @workgroup_size(WIDTH)
fn main(@builtin(workgroup_id) group_id: vec3<u32>, @builtin(local_invocation_id) local: vec3<u32>) {
    nothing = group_id.z;
    let lane = local.x % LANES;
    let pair = group_id.x * (WIDTH / LANES) + local.x / LANES;
    if (pair >= call.pairs) {
        return;
    }
    begin_tile(group_id.y);
    if (ROUTED && first_row >= rows_end) {
        return;
    }
    let columns = GROUPS * GROUP;
    let at_one = (expert * call.pairs + pair) * 2u * columns * LANES + lane;
    let at_other = at_one + columns * LANES;
    var one: array<f32, ROWS>;
    var other: array<f32, ROWS>;
    for (var r = 0u; r < ROWS; r++) {
        one[r] = zero();
        other[r] = zero();
    }
    for (var i = 0u; i < columns; i++) {
        let one_weight = weight(at_one + i * LANES);
        let other_weight = weight(at_other + i * LANES);
        for (var r = 0u; r < ROWS; r++) {
            let x = rows[source_row(r) * columns + i];
            one[r] = fused(one_weight, x, one[r]);
            other[r] = fused(other_weight, x, other[r]);
        }
    }
    take(pair, lane, one, other);
}
