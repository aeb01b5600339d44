// What becomes of the results of a product: a thread has an output of two neighbouring panels, for ROWS rows. As
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

struct Call {
    /// Rows, of which the last tile may have fewer.
    rows: u32,
    /// Pairs of panels that the bound weights have.
    pairs: u32,
    /// The first of their outputs, in results and biases.
    first: u32,
    /// Outputs of them.
    outputs: u32,
}
var<immediate> call: Call;

@group(0) @binding(0) var<storage, read_write> out: array<f32>;
@group(0) @binding(1) var<storage, read> bias: array<f32>;

const LANES: u32 = 16u;

fn gate(x: f32) -> f32 {
    var exponent: f32;
    if (GATING == 0u) {
        exponent = 0.0 - x;
    } else if (GATING == 1u) {
        exponent = fma((x * x) * 0.044715, x, x) * -1.595769;
    } else {
        exponent = -1.702 * x;
    }
    return x / (1.0 + exponential(exponent));
}

// The CPU's (`kernels/src/simd`), step by step.
fn exponential(x: f32) -> f32 {
    let clamped = min(max(x, -87.3), 88.0);
    let n = round(clamped * 1.442695040888963407);
    var r = fma(n, -0.6933594, clamped);
    r = fma(n, 2.1219444e-4, r);
    var p = 1.9875692e-4;
    p = fma(p, r, 1.3981999e-3);
    p = fma(p, r, 8.333452e-3);
    p = fma(p, r, 4.1665796e-2);
    p = fma(p, r, 1.6666665e-1);
    p = fma(p, r, 0.5);
    p = fma(r * r, p, r + 1.0);
    let power = bitcast<f32>(u32(i32(n) + 127) << 23u);
    return select(p * power, 0.0, x < -87.3);
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

// Takes what the thread of a lane has of a pair of panels, for rows from `first` on.
fn take(pair: u32, lane: u32, first: u32, one: array<f32, ROWS>, other: array<f32, ROWS>) {
    for (var r = 0u; r < ROWS; r++) {
        if (first + r < call.rows) {
            if (EPILOGUE == 2u) {
                let output = pair * LANES + lane;
                if (output < call.outputs) {
                    out[(first + r) * STRIDE + call.first + output] = gated(one[r], other[r]);
                }
            } else {
                write(first + r, pair * 2u * LANES + lane, one[r]);
                write(first + r, pair * 2u * LANES + LANES + lane, other[r]);
            }
        }
    }
}
