// Products of many rows with packed weights, as `product.wgsl` has them, of which a workgroup has a tile: rows times outputs.
// What it multiplies of a group lies in memory that its threads share, so that each word is read and each quant unpacked once for
// the tile; a thread has an output of each of four panels, for ROWS rows. While a group is multiplied, the words of the next are
// on their way. (Behind `rows_given.wgsl`.)

const PANELS: u32 = 4u;
const PAIRS: u32 = PANELS / 2u;
const OUTPUTS: u32 = PANELS * LANES;
const THREADS: u32 = 128u;
/// Threads that have the same outputs, and other rows.
const SLICES: u32 = THREADS / LANES;
const TILE_ROWS: u32 = ROWS * SLICES;
const PARTS_MAX: u32 = 2u;

/// Fours of words that threads put into shared memory, of outputs and of rows: each one of either at most.
const WEIGHT_QUADS: u32 = OUTPUTS * QUADS;
const ROW_QUADS: u32 = TILE_ROWS * QUADS;

const_assert WEIGHT_QUADS == THREADS && ROW_QUADS <= THREADS;

// Two of each: one group is read while the next is put there.
/// `[row][quad]`.
var<workgroup> row_quads: array<vec4<u32>, 2u * ROW_QUADS>;
/// `[quad][panel][lane]`.
var<workgroup> weight_quads: array<vec4<u32>, 2u * WEIGHT_QUADS>;
/// `[part][row]`: the scale, and scale × sum.
var<workgroup> rows_by: array<vec2<f32>, 2u * PARTS_MAX * TILE_ROWS>;
/// `[part][panel][lane]`: scale and minimum.
var<workgroup> weights_by: array<vec2<f32>, 2u * PARTS_MAX * OUTPUTS>;

/// What a thread fetches of a group.
struct Fetched {
    /// Words of which sixteen quants of an output are made, and where its scales are.
    low: vec4<u32>,
    high: u32,
    scales: Scales,
    /// Sixteen of a row, and what another row is scaled by.
    row: vec4<u32>,
    row_by: vec4<f32>,
}

var<private> first_pair: u32;

fn has_high() -> bool {
    return BITS == 3u || BITS == 5u || BITS == 6u;
}

// The row that a place in the tile has: of one that there is not, the last.
fn row_at(place: u32) -> u32 {
    return min(first_row + place, rows_end - 1u);
}

// The panel that a place in the tile has. Those beyond the last are those of the last pair once more, and are not written.
fn panel_at(place: u32) -> u32 {
    return min(first_pair + place / 2u, call.pairs - 1u) * 2u + place % 2u;
}

fn fetch(thread: u32, group: u32) -> Fetched {
    var fetched: Fetched;
    let quad = thread / OUTPUTS;
    let panel = panel_at(thread % OUTPUTS / LANES);
    let lane = thread % LANES;
    let at = (panel * GROUPS + group) * BITS * LANES + lane;
    for (var i = 0u; i < 4u; i++) {
        fetched.low[i] = quants[at + low_word(quad * 4u + i) * LANES];
    }
    if (has_high()) {
        fetched.high = quants[at + high_word(quad * 4u) * LANES];
    }
    if (quad < PARTS) {
        fetched.scales = scales_at(panel, lane, group);
    }
    if (thread < ROW_QUADS) {
        fetched.row = row_quad(row_at(thread / QUADS) * GROUPS + group, thread % QUADS);
    }
    if (thread < TILE_ROWS) {
        fetched.row_by = row_scale(row_at(thread) * GROUPS + group);
    }
    return fetched;
}

// Puts it where all threads see it. The first quad's threads have the scales of the first part, the second's of the second.
fn put(thread: u32, fetched: Fetched, into: u32) {
    let quad = thread / OUTPUTS;
    var sixteen: vec4<u32>;
    for (var i = 0u; i < 4u; i++) {
        sixteen[i] = four(fetched.low[i], fetched.high, quad * 4u + i);
    }
    weight_quads[into * WEIGHT_QUADS + thread] = sixteen;
    if (quad < PARTS) {
        weights_by[into * PARTS_MAX * OUTPUTS + thread] = scale_of(fetched.scales, thread % LANES, quad);
    }
    if (thread < ROW_QUADS) {
        row_quads[into * ROW_QUADS + thread] = fetched.row;
    }
    if (thread < TILE_ROWS) {
        let by = fetched.row_by;
        let at = into * PARTS_MAX * TILE_ROWS + thread;
        if (PARTS == 1u) {
            rows_by[at] = by.xy;
        } else {
            rows_by[at] = vec2<f32>(by.x, by.z * by.x);
            rows_by[at + TILE_ROWS] = vec2<f32>(by.x, by.w * by.x);
        }
    }
}

@compute @workgroup_size(WIDTH)
fn main(@builtin(workgroup_id) group_id: vec3<u32>, @builtin(local_invocation_id) local: vec3<u32>) {
    nothing = group_id.z;
    let thread = local.x;
    let lane = thread % LANES;
    let slice = thread / LANES;
    expert = 0u;
    first_row = group_id.y * TILE_ROWS;
    rows_end = call.rows;
    first_pair = group_id.x * PAIRS;
    var sums: array<array<f32, PANELS>, ROWS>;
    for (var r = 0u; r < ROWS; r++) {
        for (var p = 0u; p < PANELS; p++) {
            sums[r][p] = zero();
        }
    }
    put(thread, fetch(thread, 0u), 0u);
    workgroupBarrier();
    for (var group = 0u; group < GROUPS; group++) {
        let now = group % 2u;
        let next = fetch(thread, min(group + 1u, GROUPS - 1u));
        for (var part = 0u; part < PARTS; part++) {
            let first_quad = part * (QUADS / PARTS);
            var weights: array<array<vec4<u32>, QUADS>, PANELS>;
            var weight_by: array<vec2<f32>, PANELS>;
            for (var p = 0u; p < PANELS; p++) {
                for (var q = 0u; q < QUADS / PARTS; q++) {
                    weights[p][q] = weight_quads[now * WEIGHT_QUADS + ((first_quad + q) * PANELS + p) * LANES + lane];
                }
                weight_by[p] = weights_by[((now * PARTS_MAX + part) * PANELS + p) * LANES + lane];
            }
            for (var r = 0u; r < ROWS; r++) {
                let place = r * SLICES + slice;
                let by = rows_by[(now * PARTS_MAX + part) * TILE_ROWS + place];
                var dots: array<i32, PANELS>;
                for (var q = 0u; q < QUADS / PARTS; q++) {
                    let x = row_quads[now * ROW_QUADS + place * QUADS + first_quad + q];
                    for (var p = 0u; p < PANELS; p++) {
                        dots[p] = dot16(weights[p][q], x, dots[p]);
                    }
                }
                for (var p = 0u; p < PANELS; p++) {
                    sums[r][p] = fused(weight_by[p].x * number_of(dots[p]), by.x, sums[r][p]);
                    if (MIN) {
                        sums[r][p] = fused(weight_by[p].y, by.y, sums[r][p]);
                    }
                }
            }
        }
        put(thread, next, 1u - now);
        workgroupBarrier();
    }
    for (var pair = 0u; pair < PAIRS; pair++) {
        if (first_pair + pair < call.pairs) {
            for (var r = 0u; r < ROWS; r++) {
                let one = sums[r][2u * pair] * UNIT;
                let other = sums[r][2u * pair + 1u] * UNIT;
                take_row(first_pair + pair, lane, r * SLICES + slice, one, other);
            }
        }
    }
}
