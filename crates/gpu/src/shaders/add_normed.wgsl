// Adds rows to others by way of a norm by their root mean square: `out += x × moment × weight`. A workgroup has a row. (Behind
// `row_moments.wgsl`.)

struct Call { epsilon: f32 }
var<immediate> call: Call;

@group(0) @binding(0) var<storage, read> values: array<f32>;
@group(0) @binding(1) var<storage, read> weight: array<f32>;
@group(0) @binding(2) var<storage, read_write> out: array<f32>;

const THREADS: u32 = 64u;
const LANES: u32 = 16u;

fn threads() -> u32 {
    return THREADS;
}

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_id) local: vec3<u32>) {
    nothing = group.z;
    let start = group.x * COLUMNS;
    let scale = moments_of(local.x, start, call.epsilon).y;
    for (var i = local.x; i < COLUMNS; i += THREADS) {
        out[start + i] = out[start + i] + rounded(values[start + i] * scale * weight[i]);
    }
}
