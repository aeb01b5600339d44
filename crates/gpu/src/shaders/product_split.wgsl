// The same products where there are few rows, and so few threads, each with long sums: SPLIT threads share out the groups of an
// output, whose products are integers and may be computed in any order; then a thread for each sum adds them up in the order of
// the groups. A workgroup has a tile of rows and a pair of panels, and then the next pair that no other has. (Behind
// `rows_given.wgsl` or `rows_rounded.wgsl`.)
//
// A turn has SPLIT × EACH groups. Where TURNS is two, the words of the next are on their way while those of one turn are added up,
// and threads that add nothing up go on to multiply them; so what is shared is there twice. Tiles of many rows have enough to do.

/// Threads of an output, and groups that each computes before they are added up.
override SPLIT: u32;
override EACH: u32;
/// Turns that are under way at once: one or two.
override TURNS: u32;
/// Minima of all of these: none where weights have none.
override MINIMA: u32;
/// Products of all of these, and rows of groups.
override PRODUCTS: u32;
override ROW_PARTS: u32;

const OUTPUTS: u32 = 2u * LANES;
const EACH_MAX: u32 = 2u;
/// Groups whose products are read together.
const READ_GROUPS: u32 = 4u;

/// Of the groups of a turn and their parts, for each row and output: its product by its scale. `[turn][group][part][row][output]`
var<workgroup> products: array<f32, PRODUCTS>;
/// For each row, its scale and sums. `[turn][group][row]`
var<workgroup> of_rows: array<vec4<f32>, ROW_PARTS>;
/// For each output, its minimum. `[turn][group][part][output]`
var<workgroup> minima: array<f32, MINIMA>;
/// What sums come to. `[row][output]`
var<workgroup> results: array<f32, ROWS * OUTPUTS>;

/// What a thread has read ahead: of each of its groups, and of both panels.
var<private> words: array<Words, 2u * EACH_MAX>;
var<private> word_scales: array<Scales, 2u * EACH_MAX>;

@compute @workgroup_size(WIDTH)
fn main(
    @builtin(workgroup_id) group_id: vec3<u32>,
    @builtin(num_workgroups) workgroups: vec3<u32>,
    @builtin(local_invocation_id) local: vec3<u32>,
) {
    nothing = group_id.z;
    let thread = local.x;
    begin_tile(group_id.y);
    if (ROUTED && first_row >= rows_end) {
        return;
    }
    if (TURNS == 2u) {
        read_ahead(thread, group_id.x, 0u);
    }
    begin_rows(thread);
    var turn = 0u;
    for (var pair = group_id.x; pair < call.pairs; pair += workgroups.x) {
        // Sums: a thread has every WIDTHth of the tile's.
        var sums: array<f32, ROWS>;
        for (var s = 0u; s < ROWS; s++) {
            sums[s] = zero();
        }
        for (var begin = 0u; begin < GROUPS; begin += SPLIT * EACH) {
            multiply(thread, pair, begin, turn);
            // What is next: other groups, or those of the next pair.
            let is_last = begin + SPLIT * EACH >= GROUPS;
            let next_pair = select(pair, pair + workgroups.x, is_last);
            if (TURNS == 2u && next_pair < call.pairs) {
                read_ahead(thread, next_pair, select(begin + SPLIT * EACH, 0u, is_last));
            }
            workgroupBarrier();
            for (var s = 0u; s < ROWS; s++) {
                let sum = s * WIDTH + thread;
                if (sum < ROWS * OUTPUTS) {
                    sums[s] = added(sums[s], turn, begin, sum / OUTPUTS, sum % OUTPUTS);
                }
            }
            if (TURNS == 2u) {
                turn = 1u - turn;
            } else {
                workgroupBarrier();
            }
        }
        for (var s = 0u; s < ROWS; s++) {
            let sum = s * WIDTH + thread;
            if (sum < ROWS * OUTPUTS) {
                results[sum] = sums[s] * UNIT;
            }
        }
        workgroupBarrier();
        for (var at = thread; at < ROWS * LANES; at += WIDTH) {
            let row = at / LANES;
            let lane = at % LANES;
            let one = results[row * OUTPUTS + lane];
            let other = results[row * OUTPUTS + LANES + lane];
            take_row(pair, lane, row, one, other);
        }
    }
}

// The group that a thread has as its `each`th of those from `begin` on.
fn own_slot(thread: u32, each: u32) -> u32 {
    return each * SPLIT + thread / LANES;
}

// Reads what a thread multiplies next; beyond the last group, that one once more.
fn read_ahead(thread: u32, pair: u32, begin: u32) {
    let lane = thread % LANES;
    let panel = (expert * call.pairs + pair) * 2u;
    for (var each = 0u; each < EACH; each++) {
        let group = min(begin + own_slot(thread, each), GROUPS - 1u);
        words[each * 2u] = words_at(first_word(panel, group, lane));
        words[each * 2u + 1u] = words_at(first_word(panel + 1u, group, lane));
        word_scales[each * 2u] = scales_at(panel, lane, group);
        word_scales[each * 2u + 1u] = scales_at(panel + 1u, lane, group);
    }
}

// Multiplies the groups of a turn with all rows.
fn multiply(thread: u32, pair: u32, begin: u32, turn: u32) {
    let panel = (expert * call.pairs + pair) * 2u;
    for (var each = 0u; each < EACH; each++) {
        let slot = own_slot(thread, each);
        if (begin + slot < GROUPS) {
            multiply_group(thread % LANES, panel, each, begin + slot, turn * SPLIT * EACH + slot);
        }
    }
}

// What a lane has of a group of the first panel, or of the second: as it was read ahead, or as it is read now.
fn sixteen(each: u32, which: u32, panel: u32, group: u32, lane: u32, quad: u32) -> vec4<u32> {
    if (TURNS == 2u) {
        return sixteen_of(words[each * 2u + which], quad);
    }
    return sixteen_at(first_word(panel + which, group, lane), quad);
}

fn four_floats(each: u32, which: u32, panel: u32, group: u32, lane: u32, step: u32) -> vec4<f32> {
    if (TURNS == 2u) {
        return vec4<f32>(unpack4xI8(four_of(words[each * 2u + which], step)));
    }
    return vec4<f32>(unpack4xI8(four_at(first_word(panel + which, group, lane), step)));
}

fn first_word(panel: u32, group: u32, lane: u32) -> u32 {
    return (panel * GROUPS + group) * BITS * LANES + lane;
}

fn scales_of(each: u32, which: u32, panel: u32, group: u32, lane: u32) -> Scales {
    if (TURNS == 2u) {
        return word_scales[each * 2u + which];
    }
    return scales_at(panel + which, lane, group);
}

// Multiplies a group of two outputs with all rows; where it goes, `place` counts.
fn multiply_group(lane: u32, panel: u32, each: u32, group: u32, place: u32) {
    if (lane < ROWS) {
        of_rows[place * ROWS + lane] = row_scale(source_row(lane) * GROUPS + group);
    }
    for (var part = 0u; part < PARTS; part++) {
        let one_scale = scale_of(scales_of(each, 0u, panel, group, lane), lane, part);
        let other_scale = scale_of(scales_of(each, 1u, panel, group, lane), lane, part);
        if (MIN) {
            let at = (place * PARTS + part) * OUTPUTS + lane;
            minima[at] = one_scale.y;
            minima[at + LANES] = other_scale.y;
        }
        var one: array<f32, ROWS>;
        var other: array<f32, ROWS>;
        if (FLOATS == 1u) {
            for (var r = 0u; r < ROWS; r++) {
                let row = source_row(r) * GROUPS + group;
                for (var step = part * (STEPS / PARTS); step < (part + 1u) * (STEPS / PARTS); step++) {
                    let x = row_floats(row, step);
                    one[r] += dot(four_floats(each, 0u, panel, group, lane, step), x);
                    other[r] += dot(four_floats(each, 1u, panel, group, lane, step), x);
                }
            }
        } else {
            var one_sums: array<i32, ROWS>;
            var other_sums: array<i32, ROWS>;
            for (var quad = part * (QUADS / PARTS); quad < (part + 1u) * (QUADS / PARTS); quad++) {
                let one_sixteen = sixteen(each, 0u, panel, group, lane, quad);
                let other_sixteen = sixteen(each, 1u, panel, group, lane, quad);
                for (var r = 0u; r < ROWS; r++) {
                    let x = row_quad(source_row(r) * GROUPS + group, quad);
                    one_sums[r] = dot16(one_sixteen, x, one_sums[r]);
                    other_sums[r] = dot16(other_sixteen, x, other_sums[r]);
                }
            }
            for (var r = 0u; r < ROWS; r++) {
                one[r] = number_of(one_sums[r]);
                other[r] = number_of(other_sums[r]);
            }
        }
        for (var r = 0u; r < ROWS; r++) {
            let to = ((place * PARTS + part) * ROWS + r) * OUTPUTS + lane;
            products[to] = one_scale.x * one[r];
            products[to + LANES] = other_scale.x * other[r];
        }
    }
}

/// What a group has for a row and an output, of each part.
struct Addends {
    products: vec2<f32>,
    minima: vec2<f32>,
    of_row: vec4<f32>,
}

fn addends(place: u32, row: u32, output: u32) -> Addends {
    var found: Addends;
    found.of_row = of_rows[place * ROWS + row];
    for (var part = 0u; part < PARTS; part++) {
        let at = place * PARTS + part;
        found.products[part] = products[(at * ROWS + row) * OUTPUTS + output];
        if (MIN) {
            found.minima[part] = minima[at * OUTPUTS + output];
        }
    }
    return found;
}

fn with_addends(before: f32, found: Addends) -> f32 {
    var sum = before;
    let by = found.of_row;
    for (var part = 0u; part < PARTS; part++) {
        sum = fused(found.products[part], by.x, sum);
        if (MIN) {
            var of_row = by.y;
            if (PARTS == 2u) {
                of_row = by[2u + part] * by.x;
            }
            sum = fused(found.minima[part], of_row, sum);
        }
    }
    return sum;
}

// Adds what the groups of a turn have for a row and an output, in their order. Some are read together: one by one, each would be
// waited for.
fn added(before: f32, turn: u32, begin: u32, row: u32, output: u32) -> f32 {
    var sum = before;
    let first = turn * SPLIT * EACH;
    let count = min(SPLIT * EACH, GROUPS - begin);
    var slot = 0u;
    for (; slot + READ_GROUPS <= count; slot += READ_GROUPS) {
        var found: array<Addends, READ_GROUPS>;
        for (var k = 0u; k < READ_GROUPS; k++) {
            found[k] = addends(first + slot + k, row, output);
        }
        for (var k = 0u; k < READ_GROUPS; k++) {
            sum = with_addends(sum, found[k]);
        }
    }
    for (; slot < count; slot++) {
        sum = with_addends(sum, addends(first + slot, row, output));
    }
    return sum;
}
