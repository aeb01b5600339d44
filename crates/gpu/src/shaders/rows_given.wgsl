// Rows that packed weights are multiplied with, as `quantize.wgsl` has rounded them before. (Behind `packed.wgsl`.)

@group(0) @binding(4) var<storage, read> rows_packed: array<vec4<u32>>;
@group(0) @binding(5) var<storage, read> rows_floats: array<vec4<f32>>;
@group(0) @binding(6) var<storage, read> row_scales: array<vec4<f32>>;
@group(0) @binding(7) var<storage, read> routes: array<u32>;

fn begin_rows(thread: u32) {}

// Sixteen quants of a group; groups are counted through all rows.
fn row_quad(group: u32, quad: u32) -> vec4<u32> {
    return rows_packed[group * QUADS + quad];
}

// Four, as floats.
fn row_floats(group: u32, step: u32) -> vec4<f32> {
    return rows_floats[group * STEPS + step];
}

// A group's scale, scale × sum, and the sums of the halves.
fn row_scale(group: u32) -> vec4<f32> {
    return row_scales[group];
}
