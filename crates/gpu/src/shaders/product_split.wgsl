// The same products where there are few rows, and so few threads, each with long sums: SPLIT threads share out the groups of an
// output, whose products are integers and may be computed in any order; then one thread adds them up in the order of the groups.
// A workgroup has a pair of panels and one row. (Behind `packed.wgsl`.)

/// Threads of an output.
override SPLIT: u32;

const SPLIT_MAX: u32 = 8u;
const OUTPUTS: u32 = 2u * LANES;
const PARTS_MAX: u32 = 2u;

/// Of SPLIT groups and their parts, for each output: its product by its scale, and its minimum.
var<workgroup> scaled: array<vec2<f32>, SPLIT_MAX * PARTS_MAX * OUTPUTS>;

@compute @workgroup_size(WIDTH)
fn main(@builtin(workgroup_id) group_id: vec3<u32>, @builtin(local_invocation_id) local: vec3<u32>) {
    nothing = group_id.z;
    let lane = local.x % LANES;
    let slice = local.x / LANES;
    begin_tile(group_id.y);
    if (ROUTED && first_row >= rows_end) {
        return;
    }
    let source = source_row(0u) * GROUPS;
    let panel = (expert * call.pairs + group_id.x) * 2u;
    let panel_words = GROUPS * registers() * LANES;
    var one: array<f32, ROWS>;
    var other: array<f32, ROWS>;
    for (var begin = 0u; begin < GROUPS; begin += SPLIT) {
        let group = begin + slice;
        if (group < GROUPS) {
            let at = panel * panel_words + group * registers() * LANES + lane;
            let row = (source + group) * STEPS;
            for (var part = 0u; part < PARTS; part++) {
                let to = (slice * PARTS_MAX + part) * OUTPUTS + lane;
                let one_scale = scale_of(panel, lane, group, part);
                let other_scale = scale_of(panel + 1u, lane, group, part);
                scaled[to] = vec2<f32>(one_scale.x * dot_of(at, row, part), one_scale.y);
                scaled[to + LANES] = vec2<f32>(other_scale.x * dot_of(at + panel_words, row, part), other_scale.y);
            }
        }
        workgroupBarrier();
        if (slice == 0u) {
            for (var group = begin; group < min(begin + SPLIT, GROUPS); group++) {
                let by = row_scales[source + group];
                for (var part = 0u; part < PARTS; part++) {
                    let at = ((group - begin) * PARTS_MAX + part) * OUTPUTS + lane;
                    one[0] = added(one[0], scaled[at], by, part);
                    other[0] = added(other[0], scaled[at + LANES], by, part);
                }
            }
        }
        workgroupBarrier();
    }
    if (slice == 0u) {
        one[0] *= UNIT;
        other[0] *= UNIT;
        take(group_id.x, lane, one, other);
    }
}

fn added(sum: f32, scaled: vec2<f32>, by: vec4<f32>, part: u32) -> f32 {
    let with_product = fused(scaled.x, by.x, sum);
    if (MIN) {
        var of_row = by.y;
        if (PARTS == 2u) {
            of_row = by[2u + part] * by.x;
        }
        return fused(scaled.y, of_row, with_product);
    }
    return with_product;
}
