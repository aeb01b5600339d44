// Products and sums by the adapter's own `fma`, and by what is taken in its place.

@group(0) @binding(0) var<storage, read> terms: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read_write> results: array<vec2<f32>>;

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    nothing = id.z;
    let t = terms[id.x];
    results[id.x] = vec2<f32>(fma(t.x, t.y, t.z), fused(t.x, t.y, t.z));
}
