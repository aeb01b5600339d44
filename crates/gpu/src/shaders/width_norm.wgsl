// The norm of all query heads of a row together, and of all key heads, in the order of the CPU's registers. A workgroup has one
// of the two.

override HEADS: u32;
override KV_HEADS: u32;
override DIM: u32;

struct Call { epsilon: f32 }
var<immediate> call: Call;

@group(0) @binding(0) var<storage, read_write> qkv: array<f32>;
// Of queries, and behind them of keys.
@group(0) @binding(1) var<storage, read> weight: array<f32>;

const LANES: u32 = 16u;
var<workgroup> lanes: array<f32, LANES>;

@compute @workgroup_size(16)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_id) local: vec3<u32>) {
    nothing = group.z;
    let lane = local.x;
    let first = group.x * HEADS * DIM;
    let columns = select(HEADS, KV_HEADS, group.x == 1u) * DIM;
    let at = group.y * (HEADS + 2u * KV_HEADS) * DIM + first;
    var own = zero();
    for (var i = lane; i < columns; i += LANES) {
        own = fused(qkv[at + i], qkv[at + i], own);
    }
    lanes[lane] = own;
    workgroupBarrier();
    var four: array<f32, 4>;
    for (var i = 0u; i < 4u; i++) {
        four[i] = (lanes[i] + lanes[i + 8u]) + (lanes[i + 4u] + lanes[i + 12u]);
    }
    let sum = (four[0] + four[2]) + (four[1] + four[3]);
    let scale = divided(1.0, root(divided(sum, f32(columns)) + call.epsilon));
    for (var i = lane; i < columns; i += LANES) {
        qkv[at + i] = qkv[at + i] * scale * weight[first + i];
    }
}
