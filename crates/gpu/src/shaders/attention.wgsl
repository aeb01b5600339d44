// Attention of a row and a head over keys and values in the cache's own form, as `kernels/src/attention` defines it to the bit:
// softmax online page by page within spans of eight pages, spans merged in order, scores in powers of two. (Behind
// `kv_layout.wgsl`, `key_bias.wgsl` and `merged_spans.wgsl`.)
//
// A workgroup has a row and a head; where there are few of these, and so few workgroups, it has one span of them, and others merge
// the spans. Then it also has SIDE pages at once, side by side, where one after the other it would wait for each; what they come to
// is taken in the order of pages. Of a page a thread has a position while scores are computed, and a few dimensions while values
// are added. Products of eight bits are integers, with queries and weights of sixteen bits, which are exact in any order; where
// keys are of half precision, sums have the order of dimensions and of positions, through all pages, and SIDE is 1.

override HEADS: u32;
/// Visible positions, itself included; 0: all.
override WINDOW: u32;
/// 0: a workgroup has all spans of a row and a head; 1: one of them, and leaves what that comes to; 2: it merges these.
override PHASE: u32;
/// Whether four bytes are multiplied at once (`dot4I8Packed`): numbers of sixteen bits are two bytes each then.
override BYTES: bool;

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

/// Pages at once, and threads: 64 for each.
override SIDE: u32;
override THREADS: u32 = SIDE * PAGE;
/// Lengths of arrays, for all pages at once: positions, positions by group, their quads, eighths and sixteenths, groups, dimensions, and
/// sixteenths of positions.
override POSITIONS: u32 = SIDE * PAGE;
override POSITIONS_BY_GROUP: u32 = SIDE * GROUPS * PAGE;
override QUADS_BY_GROUP: u32 = SIDE * GROUPS * PAGE_QUADS;
override EIGHTHS_BY_GROUP: u32 = SIDE * GROUPS * EIGHTHS;
override LANES_BY_GROUP: u32 = SIDE * GROUPS * LANES;
override BY_GROUP: u32 = SIDE * GROUPS;
override DIMENSIONS: u32 = SIDE * DIM;
override POSITION_LANES: u32 = SIDE * LANES;

const EACH: u32 = DIM_MAX / PAGE;
const SPAN: u32 = 8u;
const LOWEST: f32 = -1e30;
const FACTOR_MAX: f32 = 32767.0;
const NOTHING: f32 = 1e-30;
/// Words of a group of a key, and of a page's values of a dimension.
const GROUP_QUADS: u32 = GROUP / 4u;
const PAGE_QUADS: u32 = PAGE / 4u;
/// Threads that make a page's largest of eight numbers each.
const EIGHTHS: u32 = 8u;
/// A one in each byte.
const ONES: u32 = 0x01010101u;

/// The query in sixteen bits, as `sixteens` has them, and its groups' scales.
var<workgroup> query: array<vec4<i32>, FOURS>;
var<workgroup> query_scales: array<f32, GROUPS>;
/// Of positions: weights beside the largest score of their page.
var<workgroup> weights: array<f32, POSITIONS>;
/// Of groups of values and positions: scales and centres; and weights times these in sixteen bits.
var<workgroup> of_groups: array<f32, POSITIONS_BY_GROUP>;
var<workgroup> factors: array<vec4<i32>, QUADS_BY_GROUP>;
/// The largest of each eight positions, by group.
var<workgroup> largest_of: array<f32, EIGHTHS_BY_GROUP>;
/// Sums of every sixteenth position, by group; and of weights.
var<workgroup> lanes: array<f32, LANES_BY_GROUP>;
var<workgroup> weight_lanes: array<f32, POSITION_LANES>;
/// What pages come to: their largest scores, sums of values, and by group what these are multiplied with, and centres.
var<workgroup> page_largest: array<f32, SIDE>;
var<workgroup> page_sums: array<i32, DIMENSIONS>;
var<workgroup> page_units: array<f32, BY_GROUP>;
var<workgroup> page_centres: array<f32, BY_GROUP>;

/// Of the span under way. Totals are those of a lane, in the first threads.
var<private> found: array<f32, EACH>;
var<private> largest: f32;
var<private> total: f32;

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

// Four numbers of sixteen bits: as they are; or their upper bytes in a word, and in another the lower ones less 128.
fn sixteens(numbers: vec4<i32>) -> vec4<i32> {
    if (!BYTES) {
        return numbers;
    }
    let upper = pack4xI8(numbers >> vec4<u32>(8u));
    let lower = pack4xU8(vec4<u32>(numbers & vec4<i32>(255))) ^ 0x80808080u;
    return vec4<i32>(i32(upper), i32(lower), 0, 0);
}

// One of them.
fn sixteen(four: vec4<i32>, index: u32) -> i32 {
    if (!BYTES) {
        return four[index];
    }
    return byte_of(u32(four.x), index) * 256 + (byte_of(u32(four.y), index) + 128);
}

// Four signed bytes by four such numbers, added to what `dot_of` makes a sum of.
fn add_dot(bytes: u32, four: vec4<i32>, sums: vec3<i32>) -> vec3<i32> {
    if (!BYTES) {
        return vec3<i32>(sums.x + dot(unpack4xI8(bytes), four), 0, 0);
    }
    let upper = sums.y + dot4I8Packed(bytes, u32(four.x));
    let lower = sums.x + dot4I8Packed(bytes, u32(four.y));
    return vec3<i32>(lower, upper, sums.z + dot4I8Packed(bytes, ONES));
}

fn dot_of(sums: vec3<i32>) -> i32 {
    return sums.x + sums.y * 256 + sums.z * 128;
}

// The query as products read it. All threads come here.
fn round_query(thread: u32) {
    turn(thread);
    find_largest(thread);
    for (var four = thread; four < FOURS; four += THREADS) {
        let i = four * 4u;
        let largest = largest_in(i / GROUP);
        let is_nothing = largest < NOTHING;
        if (i % GROUP == 0u) {
            query_scales[i / GROUP] = select(divided(largest, FACTOR_MAX) * SCALE_UNIT, 0.0, is_nothing);
        }
        let inverse = select(divided(FACTOR_MAX, largest), 0.0, is_nothing);
        let scaled = vec4<f32>(head[i], head[i + 1u], head[i + 2u], head[i + 3u]) * inverse;
        query[four] = sixteens(vec4<i32>(round(scaled)));
    }
    workgroupBarrier();
}

fn score(slot: u32, kv_head: u32) -> f32 {
    let at = page_of(slot, kv_head);
    let position = slot % PAGE;
    let block = position / LANES * DIM;
    let lane = position % LANES;
    var sum = zero();
    if (FORMAT == 0u) {
        for (var d = 0u; d < DIM; d++) {
            sum = fused(head[d], half_at(at, (block + d) * LANES + lane), sum);
        }
        return sum;
    }
    let quads = DIM / 4u;
    for (var group = 0u; group < GROUPS; group++) {
        let first = group * GROUP_QUADS;
        // All that is read is on its way before any of it is waited for.
        var words: array<u32, GROUP_QUADS>;
        for (var i = 0u; i < GROUP_QUADS; i++) {
            words[i] = pages[at + block * 4u + min(first + i, quads - 1u) * LANES + lane];
        }
        var sums: vec3<i32>;
        for (var i = 0u; i < GROUP_QUADS; i++) {
            if (first + i < quads) {
                sums = add_dot(words[i], query[first + i], sums);
            }
        }
        let product = f32(dot_of(sums)) * query_scales[group];
        sum = fused(product, half_at(at + KEY_SCALES, group * PAGE + position), sum);
    }
    return sum;
}

// The largest of a page's positions, in each of some groups, of what the threads of the page have put in `of_groups`, in eighths
// here. All threads come here.
fn eighths(side: u32, lane: u32, count: u32) {
    if (lane < count * EIGHTHS) {
        let first = side * GROUPS * PAGE + lane * EIGHTHS;
        var most = of_groups[first];
        for (var i = 1u; i < EIGHTHS; i++) {
            most = max(most, of_groups[first + i]);
        }
        largest_of[side * GROUPS * EIGHTHS + lane] = most;
    }
    workgroupBarrier();
}

fn largest_of_group(side: u32, group: u32) -> f32 {
    let first = (side * GROUPS + group) * EIGHTHS;
    var most = largest_of[first];
    for (var i = 1u; i < EIGHTHS; i++) {
        most = max(most, largest_of[first + i]);
    }
    return most;
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

// The word that has a quad of values of a dimension.
fn word_of(at: u32, quad: u32, d: u32) -> u32 {
    if (FORMAT == 1u) {
        return pages[at + VALUES + quad * DIM + d];
    }
    return pages[at + VALUES + (quad * GROUPS + d / GROUP) * LANES + d % LANES];
}

// The four values of a dimension in it, as signed bytes.
fn values_in(word: u32, d: u32) -> u32 {
    if (FORMAT == 1u) {
        return word;
    }
    let nibbles = (word >> (d % GROUP / LANES * 4u)) & 0x0f0f0f0fu;
    // No byte carries into the next.
    return (nibbles + 0x78787878u) ^ 0x80808080u;
}

// The values of a dimension by the factors of a page, for positions from `seen` to `behind`.
fn sum_of_values(side: u32, row: Row, kv_head: u32, page: u32, seen: u32, behind: u32, d: u32) -> i32 {
    let first = (side * GROUPS + d / GROUP) * PAGE_QUADS;
    var sums: vec3<i32>;
    // The page is the sequence's own, but for the path of a tree.
    let is_own = behind <= row.paged;
    if (is_own) {
        // All of it, without waiting for what comes before: factors of positions that are not seen are zero.
        let at = page_of(places[row.pages + page] * PAGE, kv_head);
        var words: array<u32, PAGE_QUADS>;
        for (var quad = 0u; quad < PAGE_QUADS; quad++) {
            words[quad] = word_of(at, quad, d);
        }
        for (var quad = 0u; quad < PAGE_QUADS; quad++) {
            sums = add_dot(values_in(words[quad], d), factors[first + quad], sums);
        }
        return dot_of(sums);
    }
    var p = seen / 4u * 4u;
    let whole = row.paged / 4u * 4u;
    if (p < whole) {
        let at = page_of(places[row.pages + page] * PAGE, kv_head);
        for (; p < whole; p += 4u) {
            let quad = p % PAGE / 4u;
            sums = add_dot(values_in(word_of(at, quad, d), d), factors[first + quad], sums);
        }
    }
    var sum = dot_of(sums);
    for (; p < behind; p++) {
        let slot = slot_of(row, p);
        let value = byte_of(values_in(word_of(page_of(slot, kv_head), slot % PAGE / 4u, d), d), slot % 4u);
        sum += value * sixteen(factors[first + p % PAGE / 4u], p % 4u);
    }
    return sum;
}

// What a page comes to, for all groups and dimensions, of the weights of its positions. All threads come here.
fn sum_page(side: u32, lane: u32, kv_head: u32, slot: u32, is_seen: bool) {
    let at_slot = page_of(slot, kv_head);
    let own = side * GROUPS;
    for (var group = 0u; group < GROUPS; group++) {
        let scale = half_at(at_slot + VALUE_SCALES, group * PAGE + slot % PAGE);
        of_groups[(own + group) * PAGE + lane] = select(0.0, scale, is_seen);
    }
    workgroupBarrier();
    eighths(side, lane, GROUPS);
    for (var i = lane; i < GROUPS * PAGE_QUADS; i += PAGE) {
        let most = largest_of_group(side, i / PAGE_QUADS);
        let inverse = select(divided(FACTOR_MAX, most), 0.0, most < NOTHING);
        let of_group = own * PAGE + i * 4u;
        let of_page = side * PAGE + i % PAGE_QUADS * 4u;
        var four: vec4<f32>;
        for (var v = 0u; v < 4u; v++) {
            four[v] = weights[of_page + v] * (of_groups[of_group + v] * inverse);
        }
        factors[own * PAGE_QUADS + i] = sixteens(vec4<i32>(round(four)));
    }
    if (lane < GROUPS) {
        page_units[side * GROUPS + lane] = divided(largest_of_group(side, lane), FACTOR_MAX) * SCALE_UNIT;
    }
    workgroupBarrier();
    if (FORMAT == 2u) {
        for (var group = 0u; group < GROUPS; group++) {
            let centre = half_at(at_slot + VALUE_CENTRES, group * PAGE + slot % PAGE);
            of_groups[(own + group) * PAGE + lane] = select(0.0, centre, is_seen);
        }
        workgroupBarrier();
        if (lane < LANES) {
            for (var group = 0u; group < GROUPS; group++) {
                var sum = zero();
                for (var v = lane; v < PAGE; v += LANES) {
                    sum = fused(weights[side * PAGE + v], of_groups[(own + group) * PAGE + v], sum);
                }
                lanes[(own + group) * LANES + lane] = sum;
            }
        }
        workgroupBarrier();
        if (lane < GROUPS) {
            page_centres[side * GROUPS + lane] = lane_sum((own + lane) * LANES);
        }
    }
}

// Takes what a page has come to.
fn take_page(thread: u32, page: u32) {
    let side = page % SIDE;
    let of_page = page_largest[side];
    let before = largest;
    largest = max(before, of_page);
    let keep = power_below(before - largest);
    let top = power_below(of_page - largest);
    if (thread < LANES) {
        total = fused(total, keep, rounded(weight_lanes[side * LANES + thread] * top));
    }
    for (var e = 0u; e * THREADS < DIM; e++) {
        let d = e * THREADS + thread;
        if (d < DIM) {
            found[e] = rounded(found[e] * keep);
            let group = side * GROUPS + d / GROUP;
            if (FORMAT == 2u) {
                found[e] = found[e] + rounded(page_centres[group] * top);
            }
            found[e] = fused(f32(page_sums[side * DIM + d]), top * page_units[group], found[e]);
        }
    }
}

// Adds the values of a page of half precision, position by position, and its weights. All threads come here.
fn add_page(thread: u32, row: Row, kv_head: u32, page: u32, weight: f32, seen: u32, behind: u32) {
    let of_page = page_largest[0];
    let before = largest;
    largest = max(before, of_page);
    let keep = power_below(before - largest);
    let top = power_below(of_page - largest);
    if (thread < LANES) {
        total = fused(total, keep, rounded(weight_lanes[thread] * top));
    }
    // Weights were read.
    workgroupBarrier();
    weights[thread] = weight * top;
    workgroupBarrier();
    for (var e = 0u; e * THREADS < DIM; e++) {
        found[e] = rounded(found[e] * keep);
    }
    for (var p = seen; p < behind; p++) {
        let slot = slot_of(row, p);
        let at = page_of(slot, kv_head) + VALUES;
        let by = weights[p % PAGE];
        for (var e = 0u; e * THREADS < DIM; e++) {
            let d = e * THREADS + thread;
            if (d < DIM) {
                found[e] = fused(by, half_at(at, slot % PAGE * DIM + d), found[e]);
            }
        }
    }
}

@compute @workgroup_size(THREADS)
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
    let side = thread / PAGE;
    let lane = thread % PAGE;
    largest = LOWEST;
    for (var at = first; at < last; at = at / SIDE * SIDE + SIDE) {
        // The page of this thread, if there is one.
        let page = at / SIDE * SIDE + side;
        let position = page * PAGE + lane;
        let is_seen = position >= begin && position < end;
        let slot = slot_of(row, clamp(position, begin, end - 1u));
        var own_score = LOWEST;
        if (BIASED) {
            turn_bias(side, lane, at, page, first, last);
        }
        if (is_seen) {
            own_score = score(slot, kv_head);
            if (BIASED) {
                own_score = biased(own_score, side, page, lane);
            }
        }
        of_groups[side * GROUPS * PAGE + lane] = own_score;
        workgroupBarrier();
        eighths(side, lane, 1u);
        let of_page = max(largest_of_group(side, 0u), LOWEST);
        let weight = select(0.0, power_below(own_score - of_page), is_seen);
        weights[thread] = weight;
        if (lane == 0u) {
            page_largest[side] = of_page;
        }
        // What is read of `of_groups` was read, too.
        workgroupBarrier();
        if (lane < LANES) {
            var sum = 0.0;
            for (var v = 0u; v < PAGE; v += LANES) {
                sum = sum + weights[thread + v];
            }
            weight_lanes[side * LANES + lane] = sum;
        }
        let seen = max(begin, page * PAGE);
        let behind = min(end, page * PAGE + PAGE);
        if (FORMAT == 0u) {
            add_page(thread, row, kv_head, page, weight, seen, behind);
        } else {
            sum_page(side, lane, kv_head, slot, is_seen);
            for (var d = lane; d < DIM; d += PAGE) {
                if (seen < behind) {
                    page_sums[side * DIM + d] = sum_of_values(side, row, kv_head, page, seen, behind, d);
                }
            }
            workgroupBarrier();
            for (var taken = at; taken < min(at / SIDE * SIDE + SIDE, last); taken++) {
                take_page(thread, taken);
            }
        }
        let next = at / SIDE * SIDE + SIDE;
        if (next % SPAN == 0u || next >= last) {
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
