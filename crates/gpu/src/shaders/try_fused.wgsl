// What results with the CPU's bits are made of: products and sums by the adapter's own `fma`, and by what is taken in its place;
// quotients, roots, and powers.

@group(0) @binding(0) var<storage, read> terms: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read_write> results: array<array<f32, 8>>;

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    nothing = id.z;
    let t = terms[id.x];
    results[id.x][0] = fma(t.x, t.y, t.z);
    results[id.x][1] = fused(t.x, t.y, t.z);
    results[id.x][2] = divided(t.x, t.y);
    results[id.x][3] = root(abs(t.x));
    results[id.x][4] = exponential(t.x);
    results[id.x][5] = power_below(-abs(t.x));
    results[id.x][6] = rounded(t.x * t.y) + t.z;
    results[id.x][7] = fused(t.x * t.y, t.y, t.z);
}
