// Adds rows to others by way of a norm by their root mean square: `out += x × moment × weight`.

override COLUMNS: u32;

@group(0) @binding(0) var<storage, read> values: array<f32>;
@group(0) @binding(1) var<storage, read> moments: array<vec2<f32>>;
@group(0) @binding(2) var<storage, read> weight: array<f32>;
@group(0) @binding(3) var<storage, read_write> out: array<f32>;

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    let column = id.x;
    if (column >= COLUMNS) {
        return;
    }
    let at = id.y * COLUMNS + column;
    out[at] = out[at] + values[at] * moments[id.y].y * weight[column];
}
