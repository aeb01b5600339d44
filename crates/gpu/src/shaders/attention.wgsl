// Attention of a row and a head over keys and values in the cache's own form, as `kernels/src/attention` defines it to the bit:
// softmax online page by page within spans of eight pages, spans merged in order, scores in powers of two. (Behind
// `kv_layout.wgsl`, `key_bias.wgsl` and `merged_spans.wgsl`.)
//
// A workgroup has a row and a head; where there are few of these, and so few workgroups, it has one span of them, and others merge
// the spans. In a page a thread has a position while scores are computed, and a few dimensions while values are added. Products
// of eight bits are integers, with queries and weights of sixteen bits, which are exact in any order; where keys are of half
// precision, sums have the order of dimensions and of positions.

override HEADS: u32;
/// Visible positions, itself included; 0: all.
override WINDOW: u32;
/// 0: a workgroup has all spans of a row and a head; 1: one of them, and leaves what that comes to; 2: it merges these.
override PHASE: u32;

struct Call {
    /// What queries are multiplied with, so that scores count in powers of two.
    scale: f32,
    /// Where in a page the layer begins, in words.
    layer: u32,
    /// Spans of a row at most, where each has a workgroup.
    spans: u32,
}
var<immediate> call: Call;

struct Row {
    /// Its position.
    position: u32,
    /// Positions in the sequence's own pages that it may see: from here on, those of its path.
    paged: u32,
    /// Where in `places` the sequence's pages are listed,
    pages: u32,
    /// and where the slots of the rows on the path.
    path: u32,
}

@group(0) @binding(0) var<storage, read> qkv: array<f32>;
@group(0) @binding(1) var<storage, read> rows: array<Row>;
@group(0) @binding(2) var<storage, read> places: array<u32>;
@group(0) @binding(3) var<storage, read> pages: array<u32>;
@group(0) @binding(4) var<storage, read_write> attended: array<f32>;
// What keys are without, and what turns it by pages, `[page][pair]`.
@group(0) @binding(5) var<storage, read> key_bias: array<f32>;
@group(0) @binding(6) var<storage, read> page_angles: array<vec2<f32>>;
// Of spans apart, `[row][head][span]`: the largest score, the total of weights, and the sums of values.
@group(0) @binding(7) var<storage, read_write> apart: array<f32>;

const THREADS: u32 = 64u;
const EACH: u32 = DIM_MAX / THREADS;
const SPAN: u32 = 8u;
const LOWEST: f32 = -1e30;
const FACTOR_MAX: f32 = 32767.0;
const NOTHING: f32 = 1e-30;
/// Threads that make a page's largest of eight numbers each.
const EIGHTHS: u32 = 8u;

/// The query in sixteen bits, and its groups' scales.
var<workgroup> query: array<vec4<i32>, DIM_MAX / 4u>;
var<workgroup> query_scales: array<f32, GROUPS_MAX>;
/// Of the page's positions: scores, then weights beside the largest of them.
var<workgroup> weights: array<f32, PAGE>;
/// Of groups of values and positions: scales and centres, then weights times these in sixteen bits.
var<workgroup> of_groups: array<f32, GROUPS_MAX * PAGE>;
var<workgroup> factors: array<i32, GROUPS_MAX * PAGE>;
/// The largest of each eight positions, by group.
var<workgroup> largest_of: array<f32, GROUPS_MAX * EIGHTHS>;
/// Sums of every sixteenth position, by group.
var<workgroup> lanes: array<f32, GROUPS_MAX * LANES>;

fn slot_of(row: Row, position: u32) -> u32 {
    if (position < row.paged) {
        return places[row.pages + position / PAGE] * PAGE + position % PAGE;
    }
    return places[row.path + position - row.paged];
}

fn half_at(word: u32, index: u32) -> f32 {
    let both = unpack2x16float(pages[word + index / 2u]);
    return select(both.x, both.y, index % 2u == 1u);
}

fn byte_of(word: u32, index: u32) -> i32 {
    return i32(word << (24u - index * 8u)) >> 24u;
}

// The query as products read it. All threads come here.
fn round_query(thread: u32) {
    turn(thread);
    if (thread < groups()) {
        let end = min((thread + 1u) * GROUP, DIM);
        var largest = 0.0;
        for (var i = thread * GROUP; i < end; i++) {
            largest = max(largest, abs(head[i]));
        }
        let is_nothing = largest < NOTHING;
        query_scales[thread] = select(divided(largest, FACTOR_MAX) * SCALE_UNIT, 0.0, is_nothing);
        let inverse = select(divided(FACTOR_MAX, largest), 0.0, is_nothing);
        for (var i = thread * GROUP; i < end; i += 4u) {
            let four = vec4<f32>(head[i], head[i + 1u], head[i + 2u], head[i + 3u]);
            query[i / 4u] = vec4<i32>(round(four * inverse));
        }
    }
    workgroupBarrier();
}

fn score(slot: u32, kv_head: u32) -> f32 {
    let at = page_of(slot, kv_head);
    let position = slot % PAGE;
    let block = position / LANES * DIM;
    let lane = position % LANES;
    var sum = 0.0;
    if (FORMAT == 0u) {
        for (var d = 0u; d < DIM; d++) {
            sum = fused(head[d], half_at(at, (block + d) * LANES + lane), sum);
        }
        return sum;
    }
    for (var group = 0u; group < groups(); group++) {
        var dot_of = 0i;
        let end = min((group + 1u) * GROUP, DIM) / 4u;
        for (var quad = group * (GROUP / 4u); quad < end; quad++) {
            let four = unpack4xI8(pages[at + block * 4u + quad * LANES + lane]);
            dot_of += dot(four, query[quad]);
        }
        let product = f32(dot_of) * query_scales[group];
        sum = fused(product, half_at(at + KEY_SCALES, group * PAGE + position), sum);
    }
    return sum;
}

// The largest weight, or scale, of the page of a group, of what all threads have put in `of_groups` and in eighths here.
fn eighths(thread: u32, count: u32) {
    if (thread < count * EIGHTHS) {
        let first = thread * EIGHTHS;
        var largest = of_groups[first];
        for (var i = 1u; i < EIGHTHS; i++) {
            largest = max(largest, of_groups[first + i]);
        }
        largest_of[thread] = largest;
    }
    workgroupBarrier();
}

fn largest_of_group(group: u32) -> f32 {
    var largest = largest_of[group * EIGHTHS];
    for (var i = 1u; i < EIGHTHS; i++) {
        largest = max(largest, largest_of[group * EIGHTHS + i]);
    }
    return largest;
}

// The sum of sixteen lanes, as the CPU's registers add them.
fn lane_sum(first: u32) -> f32 {
    var four: array<f32, 4>;
    for (var i = 0u; i < 4u; i++) {
        let at = first + i;
        four[i] = (lanes[at] + lanes[at + 8u]) + (lanes[at + 4u] + lanes[at + 12u]);
    }
    return (four[0] + four[2]) + (four[1] + four[3]);
}

// A quad of values of a dimension.
fn values_of(at: u32, quad: u32, d: u32) -> vec4<i32> {
    if (FORMAT == 1u) {
        return unpack4xI8(pages[at + VALUES + quad * DIM + d]);
    }
    let word = pages[at + VALUES + (quad * groups() + d / GROUP) * LANES + d % LANES];
    let nibbles = (word >> (d % GROUP / LANES * 4u)) & 0x0f0f0f0fu;
    return vec4<i32>(unpack4xU8(nibbles)) - 8;
}

fn factors_of(at: u32) -> vec4<i32> {
    return vec4<i32>(factors[at], factors[at + 1u], factors[at + 2u], factors[at + 3u]);
}

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group_id: vec3<u32>, @builtin(local_invocation_id) local: vec3<u32>) {
    nothing = group_id.z;
    let thread = local.x;
    let number = group_id.x;
    let index = select(group_id.y, group_id.y / max(call.spans, 1u), PHASE == 1u);
    let row = rows[index];
    let end = row.position + 1u;
    var begin = 0u;
    if (WINDOW != 0u && end > WINDOW) {
        begin = end - WINDOW;
    }
    // Pages of this workgroup.
    var first = begin / PAGE;
    var last = (end + PAGE - 1u) / PAGE;
    merged_largest = LOWEST;
    if (PHASE == 2u) {
        merge_apart(thread, index, number, first, last);
        return;
    }
    let span = group_id.y % max(call.spans, 1u);
    if (PHASE == 1u) {
        first = max(first, span * SPAN);
        last = min(last, span * SPAN + SPAN);
        if (first >= last) {
            return;
        }
    }
    let kv_head = number / (HEADS / KV_HEADS);
    let own = (index * (HEADS + 2u * KV_HEADS) + number) * DIM;
    for (var i = thread; i < DIM; i += THREADS) {
        head[i] = qkv[own + i] * call.scale;
    }
    workgroupBarrier();
    if (BIASED) {
        begin_bias(thread, kv_head);
    }
    if (FORMAT != 0u) {
        round_query(thread);
    }
    // Of the span under way. Totals are those of a lane, in the first threads.
    var found: array<f32, EACH>;
    var largest = LOWEST;
    var total = 0.0;
    for (var page = first; page < last; page++) {
        let position = page * PAGE + thread;
        let is_seen = position >= begin && position < end;
        let slot = slot_of(row, clamp(position, begin, end - 1u));
        var found_score = score(slot, kv_head);
        if (BIASED) {
            turn_bias(thread, page, first, last);
            found_score = biased(found_score, page, thread);
        }
        let own_score = select(LOWEST, found_score, is_seen);
        of_groups[thread] = own_score;
        workgroupBarrier();
        eighths(thread, 1u);
        let of_page = max(largest_of_group(0u), LOWEST);
        let before = largest;
        largest = max(before, of_page);
        let keep = power_below(before - largest);
        let top = power_below(of_page - largest);
        let weight = select(0.0, power_below(own_score - of_page), is_seen);
        weights[thread] = select(weight, weight * top, FORMAT == 0u);
        // What is read of `of_groups` and `lanes` was read.
        workgroupBarrier();
        if (FORMAT == 0u) {
            of_groups[thread] = weight;
            workgroupBarrier();
        }
        if (thread < LANES) {
            var sum = 0.0;
            for (var v = 0u; v < PAGE; v += LANES) {
                sum = sum + select(weights[thread + v], of_groups[thread + v], FORMAT == 0u);
            }
            total = fused(total, keep, rounded(sum * top));
        }
        for (var e = 0u; e < EACH; e++) {
            found[e] *= keep;
        }
        let seen = max(begin, page * PAGE);
        let behind = min(end, page * PAGE + PAGE);
        if (FORMAT == 0u) {
            workgroupBarrier();
            for (var p = seen; p < behind; p++) {
                let other = slot_of(row, p);
                let at = page_of(other, kv_head) + VALUES;
                let by = weights[p % PAGE];
                for (var e = 0u; e * THREADS < DIM; e++) {
                    let d = e * THREADS + thread;
                    if (d < DIM) {
                        found[e] = fused(by, half_at(at, other % PAGE * DIM + d), found[e]);
                    }
                }
            }
        } else {
            let at_slot = page_of(slot, kv_head);
            for (var group = 0u; group < groups(); group++) {
                let scale = half_at(at_slot + VALUE_SCALES, group * PAGE + slot % PAGE);
                of_groups[group * PAGE + thread] = select(0.0, scale, is_seen);
            }
            workgroupBarrier();
            eighths(thread, groups());
            for (var group = 0u; group < groups(); group++) {
                let most = largest_of_group(group);
                let inverse = select(divided(FACTOR_MAX, most), 0.0, most < NOTHING);
                let over = of_groups[group * PAGE + thread] * inverse;
                factors[group * PAGE + thread] = i32(round(weight * over));
            }
            workgroupBarrier();
            if (FORMAT == 2u) {
                for (var group = 0u; group < groups(); group++) {
                    let centre = half_at(at_slot + VALUE_CENTRES, group * PAGE + slot % PAGE);
                    of_groups[group * PAGE + thread] = select(0.0, centre, is_seen);
                }
                workgroupBarrier();
                if (thread < LANES) {
                    for (var group = 0u; group < groups(); group++) {
                        var sum = 0.0;
                        for (var v = thread; v < PAGE; v += LANES) {
                            sum = fused(weights[v], of_groups[group * PAGE + v], sum);
                        }
                        lanes[group * LANES + thread] = sum;
                    }
                }
                workgroupBarrier();
            }
            for (var e = 0u; e * THREADS < DIM; e++) {
                let d = e * THREADS + thread;
                if (d < DIM) {
                    let group = d / GROUP;
                    if (FORMAT == 2u) {
                        found[e] = found[e] + rounded(lane_sum(group * LANES) * top);
                    }
                    // Whole quads of the sequence's own page, then position by position.
                    var sum = 0i;
                    var p = seen / 4u * 4u;
                    let whole = min(behind, row.paged) / 4u * 4u;
                    if (p < whole) {
                        let at = page_of(places[row.pages + page] * PAGE, kv_head);
                        for (; p < whole; p += 4u) {
                            let quad = p % PAGE / 4u;
                            sum += dot(values_of(at, quad, d), factors_of(group * PAGE + quad * 4u));
                        }
                    }
                    for (; p < behind; p++) {
                        let other = slot_of(row, p);
                        let values = values_of(page_of(other, kv_head), other % PAGE / 4u, d);
                        sum += values[other % 4u] * factors[group * PAGE + p % PAGE];
                    }
                    let by = top * (divided(largest_of_group(group), FACTOR_MAX) * SCALE_UNIT);
                    found[e] = fused(f32(sum), by, found[e]);
                }
            }
            workgroupBarrier();
        }
        if (page % SPAN == SPAN - 1u || page + 1u == last) {
            workgroupBarrier();
            if (thread < LANES) {
                lanes[thread] = total;
            }
            workgroupBarrier();
            let of_span = lane_sum(0u);
            if (PHASE == 1u) {
                leave(thread, place_apart(index, number, span), found, largest, of_span);
                return;
            }
            merge(found, largest, of_span);
            found = array<f32, EACH>();
            largest = LOWEST;
            total = 0.0;
        }
    }
    finish(thread, index, number);
}
