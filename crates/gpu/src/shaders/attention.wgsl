// Attention of a row and a head, softmax online block by block: positions in pages first, then, of a draft tree, the rows on
// its path, whose keys and values lie beside the queries. A workgroup has a row and a head; in a block a thread has a position
// while scores are computed, and a few dimensions while values are added.

override HEADS: u32;
override KV_HEADS: u32;
override DIM: u32;
/// Visible positions, itself included; 0: all.
override WINDOW: u32;

struct Call { scale: f32 }
var<immediate> call: Call;

struct Row {
    /// Its position.
    position: u32,
    /// Positions in pages that it may see: from here on, those of its path.
    paged: u32,
    /// Where in `places` the sequence's pages are listed,
    pages: u32,
    /// and where the rows on the path.
    path: u32,
}

@group(0) @binding(0) var<storage, read> qkv: array<f32>;
@group(0) @binding(1) var<storage, read> rows: array<Row>;
@group(0) @binding(2) var<storage, read> places: array<u32>;
// As `heads.wgsl` writes them.
@group(0) @binding(3) var<storage, read> pages: array<f32>;
@group(0) @binding(4) var<storage, read_write> attended: array<f32>;

const THREADS: u32 = 64u;
const PAGE: u32 = 64u;
const DIM_MAX: u32 = 256u;
const EACH: u32 = DIM_MAX / THREADS;
const LEAST: f32 = -3.0e38;

var<workgroup> query: array<f32, DIM_MAX>;
var<workgroup> scores: array<f32, THREADS>;

// Where the keys of a position begin: in pages, or beside a row's queries. Values are `apart` floats behind.
fn keys_in_pages(row: Row, position: u32, kv_head: u32) -> u32 {
    let slot = places[row.pages + position / PAGE] * PAGE + position % PAGE;
    return (slot * KV_HEADS + kv_head) * 2u * DIM;
}

fn keys_in_rows(row: Row, position: u32, kv_head: u32) -> u32 {
    let other = places[row.path + position - row.paged];
    return (other * (HEADS + 2u * KV_HEADS) + HEADS + kv_head) * DIM;
}

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_id) local: vec3<u32>) {
    let head = group.x;
    let kv_head = head / (HEADS / KV_HEADS);
    let thread = local.x;
    let row = rows[group.y];
    let own = group.y * (HEADS + 2u * KV_HEADS) * DIM + head * DIM;
    for (var i = thread; i < DIM; i += THREADS) {
        query[i] = qkv[own + i];
    }
    let end = row.position + 1u;
    var begin = 0u;
    if (WINDOW != 0u && end > WINDOW) {
        begin = end - WINDOW;
    }
    var found: array<f32, EACH>;
    var largest = LEAST;
    var weight = 0.0;
    let first = begin / THREADS;
    let last = (end + THREADS - 1u) / THREADS;
    for (var block = first; block < last; block++) {
        workgroupBarrier();
        let position = block * THREADS + thread;
        var score = LEAST;
        if (position >= begin && position < end) {
            var sum = 0.0;
            if (position < row.paged) {
                let keys = keys_in_pages(row, position, kv_head);
                for (var i = 0u; i < DIM; i++) {
                    sum = fma(query[i], pages[keys + i], sum);
                }
            } else {
                let keys = keys_in_rows(row, position, kv_head);
                for (var i = 0u; i < DIM; i++) {
                    sum = fma(query[i], qkv[keys + i], sum);
                }
            }
            score = sum * call.scale;
        }
        scores[thread] = score;
        workgroupBarrier();
        let from_position = max(begin, block * THREADS);
        let to_position = min(end, block * THREADS + THREADS);
        let before = largest;
        for (var p = from_position; p < to_position; p++) {
            largest = max(largest, scores[p - block * THREADS]);
        }
        workgroupBarrier();
        scores[thread] = select(0.0, exp(score - largest), score > LEAST);
        workgroupBarrier();
        let kept = exp(before - largest);
        weight *= kept;
        for (var e = 0u; e < EACH; e++) {
            found[e] *= kept;
        }
        for (var p = from_position; p < to_position; p++) {
            let by = scores[p - block * THREADS];
            weight += by;
            if (p < row.paged) {
                let values = keys_in_pages(row, p, kv_head) + DIM;
                for (var e = 0u; e * THREADS < DIM; e++) {
                    if (e * THREADS + thread < DIM) {
                        found[e] = fma(by, pages[values + e * THREADS + thread], found[e]);
                    }
                }
            } else {
                let values = keys_in_rows(row, p, kv_head) + KV_HEADS * DIM;
                for (var e = 0u; e * THREADS < DIM; e++) {
                    if (e * THREADS + thread < DIM) {
                        found[e] = fma(by, qkv[values + e * THREADS + thread], found[e]);
                    }
                }
            }
        }
    }
    let to = (group.y * HEADS + head) * DIM;
    for (var e = 0u; e < EACH; e++) {
        if (e * THREADS + thread < DIM) {
            attended[to + e * THREADS + thread] = found[e] / weight;
        }
    }
}
