// Adds what a row's experts made of it to the residual stream, each by its weight, in the order in which they were chosen; the
// one that all rows go to comes last.

override COLUMNS: u32;
override CHOSEN: u32;
override PLACES: u32;

@group(0) @binding(0) var<storage, read_write> residual: array<f32>;
// `[row × PLACES + place][COLUMNS]`.
@group(0) @binding(1) var<storage, read> products: array<f32>;
@group(0) @binding(2) var<storage, read> weights: array<f32>;
// `[row][COLUMNS]`.
@group(0) @binding(3) var<storage, read> shared_products: array<f32>;

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    nothing = id.z;
    let column = id.x;
    if (column >= COLUMNS) {
        return;
    }
    let at = id.y * COLUMNS + column;
    var sum = residual[at];
    for (var place = 0u; place < CHOSEN; place++) {
        let from_place = id.y * PLACES + place;
        sum = sum + rounded(weights[from_place] * products[from_place * COLUMNS + column]);
    }
    if (PLACES > CHOSEN) {
        sum = sum + rounded(weights[id.y * PLACES + CHOSEN] * shared_products[at]);
    }
    residual[at] = sum;
}
