// What becomes of the results of a product: a thread has an output of two neighbouring panels, for ROWS rows: those that
// follow each other, or places of one expert. As
// `kernels/src/matmul/epilogue.rs`, of which it has the bits.

/// Threads of a workgroup.
override WIDTH: u32;
/// 0: results are written, 1: added to what is there, 2: of pairs of panels, values as gates let them through.
override EPILOGUE: u32;
/// 0: silu, 1: gelu by tanh, 2: clamped swish.
override GATING: u32;
/// Whether a bias is added.
override BIAS: bool;
/// Outputs, from one row of results to the next.
override STRIDE: u32;
/// Whether rows are places of experts, sorted by `sort_places.wgsl`; then how many of them share a row that is read.
override ROUTED: bool;
override SHARE: u32;

struct Call {
    /// Rows, of which the last tile may have fewer.
    rows: u32,
    /// Pairs of panels that the bound weights have.
    pairs: u32,
    /// The first of their outputs, in results and biases.
    first: u32,
    /// Outputs of them.
    outputs: u32,
    /// Tiles of places at most, where there are any.
    tiles: u32,
    /// That of the norm of a row that is rounded by each workgroup.
    epsilon: f32,
}
var<immediate> call: Call;

@group(0) @binding(0) var<storage, read_write> out: array<f32>;
@group(0) @binding(1) var<storage, read> bias: array<f32>;

const LANES: u32 = 16u;

/// Rows of the tile, numbered within the call or among sorted places; the expert whose weights they meet.
var<private> first_row: u32;
var<private> rows_end: u32;
var<private> expert: u32;

// Finds out what tile this is.
fn begin_tile(tile: u32) {
    if (ROUTED) {
        expert = routes[tile * 4u];
        first_row = routes[tile * 4u + 1u];
        rows_end = routes[tile * 4u + 2u];
    } else {
        first_row = tile * ROWS;
        rows_end = call.rows;
    }
}

// The row of a tile where it is written; of one that it does not have, any that is there.
fn target_row(r: u32) -> u32 {
    if (ROUTED) {
        return routes[call.tiles * 4u + min(first_row + r, max(rows_end, 1u) - 1u)];
    }
    return first_row + r;
}

// The same where it is read.
fn source_row(r: u32) -> u32 {
    return select(first_row + r, target_row(r) / SHARE, ROUTED);
}

fn gate(x: f32) -> f32 {
    var exponent: f32;
    if (GATING == 0u) {
        exponent = 0.0 - x;
    } else if (GATING == 1u) {
        // Compilers move constants past other factors.
        exponent = rounded(fused(rounded(x * x) * 0.044715, x, x) * -1.595769);
    } else {
        exponent = -1.702 * x;
    }
    return divided(x, 1.0 + exponential(exponent));
}

fn gated(gates: f32, value: f32) -> f32 {
    if (GATING == 2u) {
        return gate(min(7.0, gates)) * (clamp(value, -7.0, 7.0) + 1.0);
    }
    return gate(gates) * value;
}

fn write(row: u32, output: u32, sum: f32) {
    if (output >= call.outputs) {
        return;
    }
    let column = call.first + output;
    let at = row * STRIDE + column;
    var y = sum;
    if (EPILOGUE == 1u) {
        var before = out[at];
        if (BIAS) {
            before = before + bias[column];
        }
        out[at] = before + y;
    } else {
        if (BIAS) {
            y = y + bias[column];
        }
        out[at] = y;
    }
}

// Takes what the thread of a lane has of a pair of panels.
fn take(pair: u32, lane: u32, one: array<f32, ROWS>, other: array<f32, ROWS>) {
    for (var r = 0u; r < ROWS; r++) {
        take_row(pair, lane, r, one[r], other[r]);
    }
}

// The same of a row of the tile.
fn take_row(pair: u32, lane: u32, r: u32, one: f32, other: f32) {
    if (first_row + r >= rows_end) {
        return;
    }
    let row = target_row(r);
    if (EPILOGUE == 2u) {
        let output = pair * LANES + lane;
        if (output < call.outputs) {
            out[row * STRIDE + call.first + output] = gated(one, other);
        }
    } else {
        write(row, pair * 2u * LANES + lane, one);
        write(row, pair * 2u * LANES + LANES + lane, other);
    }
}
