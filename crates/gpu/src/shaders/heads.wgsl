// Behind the projection: norms of query and key heads, rope, and keys and values into the pages. A thread has a head of a row.

override HEADS: u32;
override KV_HEADS: u32;
override DIM: u32;
/// Pairs of dimensions that rope turns.
override PAIRS: u32;
/// Whether query and key heads are normed.
override NORMED: bool;

struct Call {
    rows: u32,
    /// Floats of angles from one row to the next, and the first of this layer's.
    stride: u32,
    first: u32,
    epsilon: f32,
}
var<immediate> call: Call;

@group(0) @binding(0) var<storage, read_write> qkv: array<f32>;
@group(0) @binding(1) var<storage, read> cosines: array<f32>;
@group(0) @binding(2) var<storage, read> sines: array<f32>;
@group(0) @binding(3) var<storage, read> query_norm: array<f32>;
@group(0) @binding(4) var<storage, read> key_norm: array<f32>;
@group(0) @binding(5) var<storage, read> slots: array<u32>;
// `[slot][KV_HEADS][keys, values][DIM]`.
@group(0) @binding(6) var<storage, read_write> pages: array<f32>;

// `[row][keys, values][KV_HEADS][DIM]`, for the cache.
@group(0) @binding(7) var<storage, read_write> results: array<f32>;

/// A row of a draft tree: it stays where it is.
const NOWHERE: u32 = 0xffffffffu;

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    let head = id.x;
    let row = id.y;
    if (head >= HEADS + 2u * KV_HEADS) {
        return;
    }
    let at = row * (HEADS + 2u * KV_HEADS) * DIM + head * DIM;
    if (head < HEADS + KV_HEADS) {
        if (NORMED) {
            var squares = 0.0;
            for (var i = 0u; i < DIM; i++) {
                squares = fma(qkv[at + i], qkv[at + i], squares);
            }
            let scale = 1.0 / sqrt(squares / f32(DIM) + call.epsilon);
            for (var i = 0u; i < DIM; i++) {
                let weight = select(key_norm[i], query_norm[i], head < HEADS);
                qkv[at + i] = qkv[at + i] * scale * weight;
            }
        }
        let angles = row * call.stride + call.first;
        for (var i = 0u; i < PAIRS; i++) {
            let a = qkv[at + i];
            let b = qkv[at + PAIRS + i];
            let cosine = cosines[angles + i];
            let sine = sines[angles + i];
            qkv[at + i] = a * cosine - b * sine;
            qkv[at + PAIRS + i] = b * cosine + a * sine;
        }
    }
    if (head >= HEADS) {
        let kv_head = (head - HEADS) % KV_HEADS;
        let side = (head - HEADS) / KV_HEADS;
        let slot = slots[row];
        let page = ((slot * KV_HEADS + kv_head) * 2u + side) * DIM;
        let result = ((row * 2u + side) * KV_HEADS + kv_head) * DIM;
        for (var i = 0u; i < DIM; i++) {
            results[result + i] = qkv[at + i];
            if (slot != NOWHERE) {
                pages[page + i] = qkv[at + i];
            }
        }
    }
}
