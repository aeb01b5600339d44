// The same products where there are few rows, and so few threads, each with long sums: SPLIT threads share out the groups of an
// output, whose products are integers and may be computed in any order; then a thread for each sum adds them up in the order of
// the groups. A workgroup has a pair of panels and a tile of rows. (Behind
// `rows_given.wgsl` or `rows_rounded.wgsl`.)

/// Threads of an output, and groups that each computes before they are added up.
override SPLIT: u32;
override EACH: u32;
/// Minima that are kept: none where weights have none.
override MINIMA: u32;

const OUTPUTS: u32 = 2u * LANES;

/// Of the groups under way and their parts, for each row and output: its product by its scale. `[group][part][row][output]`
var<workgroup> products: array<f32, SPLIT * EACH * PARTS * ROWS * OUTPUTS>;
/// For each row, its scale and sums. `[group][row]`
var<workgroup> of_rows: array<vec4<f32>, SPLIT * EACH * ROWS>;
/// For each output, its minimum. `[group][part][output]`
var<workgroup> minima: array<f32, MINIMA>;

@compute @workgroup_size(WIDTH)
fn main(@builtin(workgroup_id) group_id: vec3<u32>, @builtin(local_invocation_id) local: vec3<u32>) {
    nothing = group_id.z;
    let thread = local.x;
    begin_tile(group_id.y);
    if (ROUTED && first_row >= rows_end) {
        return;
    }
    begin_rows(thread);
    // Sums: a thread has every WIDTHth of the tile's.
    var sums: array<f32, ROWS>;
    for (var begin = 0u; begin < GROUPS; begin += SPLIT * EACH) {
        for (var each = 0u; each < EACH; each++) {
            multiply(group_id.x, thread % LANES, begin, each * SPLIT + thread / LANES);
        }
        workgroupBarrier();
        for (var s = 0u; s < ROWS; s++) {
            let sum = s * WIDTH + thread;
            if (sum < ROWS * OUTPUTS) {
                sums[s] = added(sums[s], begin, sum / OUTPUTS, sum % OUTPUTS);
            }
        }
        workgroupBarrier();
    }
    for (var s = 0u; s < ROWS; s++) {
        let sum = s * WIDTH + thread;
        if (sum < ROWS * OUTPUTS) {
            products[sum] = sums[s] * UNIT;
        }
    }
    workgroupBarrier();
    for (var at = thread; at < ROWS * LANES; at += WIDTH) {
        let row = at / LANES;
        let lane = at % LANES;
        let one = products[row * OUTPUTS + lane];
        let other = products[row * OUTPUTS + LANES + lane];
        take_row(group_id.x, lane, row, one, other);
    }
}

// Multiplies a group of those that begin at `begin`, the `slot`th, of two outputs and all rows.
fn multiply(pair: u32, lane: u32, begin: u32, slot: u32) {
    let group = begin + slot;
    if (group >= GROUPS) {
        return;
    }
    if (lane < ROWS) {
        of_rows[slot * ROWS + lane] = row_scale(source_row(lane) * GROUPS + group);
    }
    let panel = (expert * call.pairs + pair) * 2u;
    let panel_words = GROUPS * registers() * LANES;
    let at = panel * panel_words + group * registers() * LANES + lane;
    for (var part = 0u; part < PARTS; part++) {
        let one_scale = scale_of(panel, lane, group, part);
        let other_scale = scale_of(panel + 1u, lane, group, part);
        let place = (slot * PARTS + part) * OUTPUTS + lane;
        if (MIN) {
            minima[place] = one_scale.y;
            minima[place + LANES] = other_scale.y;
        }
        var one: array<f32, ROWS>;
        var other: array<f32, ROWS>;
        if (FLOATS == 1u) {
            for (var r = 0u; r < ROWS; r++) {
                let row = source_row(r) * GROUPS + group;
                one[r] = floats_of(at, row, part);
                other[r] = floats_of(at + panel_words, row, part);
            }
        } else {
            var one_sums: array<i32, ROWS>;
            var other_sums: array<i32, ROWS>;
            for (var quad = part * (QUADS / PARTS); quad < (part + 1u) * (QUADS / PARTS); quad++) {
                let one_sixteen = sixteen(at, quad);
                let other_sixteen = sixteen(at + panel_words, quad);
                for (var r = 0u; r < ROWS; r++) {
                    let x = row_quad(source_row(r) * GROUPS + group, quad);
                    one_sums[r] = dot16(one_sixteen, x, one_sums[r]);
                    other_sums[r] = dot16(other_sixteen, x, other_sums[r]);
                }
            }
            for (var r = 0u; r < ROWS; r++) {
                one[r] = f32(one_sums[r]);
                other[r] = f32(other_sums[r]);
            }
        }
        for (var r = 0u; r < ROWS; r++) {
            let to = ((slot * PARTS + part) * ROWS + r) * OUTPUTS + lane;
            products[to] = one_scale.x * one[r];
            products[to + LANES] = other_scale.x * other[r];
        }
    }
}

fn floats_of(at: u32, row: u32, part: u32) -> f32 {
    var sum = 0.0;
    for (var step = part * (STEPS / PARTS); step < (part + 1u) * (STEPS / PARTS); step++) {
        sum += dot(vec4<f32>(unpack4xI8(four(at, step))), row_floats(row, step));
    }
    return sum;
}

// Adds what the groups under way have for a row and an output, in their order.
fn added(before: f32, begin: u32, row: u32, output: u32) -> f32 {
    var sum = before;
    for (var slot = 0u; slot < min(SPLIT * EACH, GROUPS - begin); slot++) {
        let by = of_rows[slot * ROWS + row];
        for (var part = 0u; part < PARTS; part++) {
            let place = slot * PARTS + part;
            sum = fused(products[(place * ROWS + row) * OUTPUTS + output], by.x, sum);
            if (MIN) {
                var of_row = by.y;
                if (PARTS == 2u) {
                    of_row = by[2u + part] * by.x;
                }
                sum = fused(minima[place * OUTPUTS + output], of_row, sum);
            }
        }
    }
    return sum;
}
