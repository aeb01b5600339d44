// Products of packed weights with rows of signed bytes, as `kernels/src/matmul` defines them. (Behind `rows_given.wgsl`.)
//
// A thread has an output of two neighbouring panels, for ROWS rows. Threads that lie beside each other read words of weights
// that do, and all threads of a workgroup the same words of the rows. Integer sums are exact however they are added, so they
// may be added as floats, where that is faster: none exceeds 2^24.

@compute @workgroup_size(WIDTH)
fn main(@builtin(workgroup_id) group_id: vec3<u32>, @builtin(local_invocation_id) local: vec3<u32>) {
    nothing = group_id.z;
    let lane = local.x % LANES;
    let wanted = group_id.x * (WIDTH / LANES) + local.x / LANES;
    // A thread beyond the last pair computes that once more, so that all of a group stay together; it writes nothing.
    let pair = min(wanted, call.pairs - 1u);
    begin_tile(group_id.y);
    if (ROUTED && first_row >= rows_end) {
        return;
    }
    var sources: array<u32, ROWS>;
    for (var r = 0u; r < ROWS; r++) {
        sources[r] = source_row(r) * GROUPS;
    }
    // Of experts, all of one after all of another.
    let panel = expert * call.pairs * 2u + pair * 2u;
    let panel_words = GROUPS * BITS * LANES;
    var one: array<f32, ROWS>;
    var other: array<f32, ROWS>;
    for (var r = 0u; r < ROWS; r++) {
        one[r] = zero();
        other[r] = zero();
    }
    for (var group = 0u; group < GROUPS; group++) {
        let at = panel * panel_words + group * BITS * LANES + lane;
        for (var part = 0u; part < PARTS; part++) {
            var one_dots: array<f32, ROWS>;
            var other_dots: array<f32, ROWS>;
            if (FLOATS == 1u) {
                for (var step = part * (STEPS / PARTS); step < (part + 1u) * (STEPS / PARTS); step++) {
                    let one_four = vec4<f32>(unpack4xI8(four_at(at, step)));
                    let other_four = vec4<f32>(unpack4xI8(four_at(at + panel_words, step)));
                    for (var r = 0u; r < ROWS; r++) {
                        let x = row_floats(sources[r] + group, step);
                        one_dots[r] += dot(one_four, x);
                        other_dots[r] += dot(other_four, x);
                    }
                }
            } else {
                var one_sums: array<i32, ROWS>;
                var other_sums: array<i32, ROWS>;
                for (var quad = part * (QUADS / PARTS); quad < (part + 1u) * (QUADS / PARTS); quad++) {
                    let one_sixteen = sixteen_at(at, quad);
                    let other_sixteen = sixteen_at(at + panel_words, quad);
                    for (var r = 0u; r < ROWS; r++) {
                        let x = row_quad(sources[r] + group, quad);
                        one_sums[r] = dot16(one_sixteen, x, one_sums[r]);
                        other_sums[r] = dot16(other_sixteen, x, other_sums[r]);
                    }
                }
                for (var r = 0u; r < ROWS; r++) {
                    one_dots[r] = number_of(one_sums[r]);
                    other_dots[r] = number_of(other_sums[r]);
                }
            }
            let one_scale = scale_of(scales_at(panel, lane, group), lane, part);
            let other_scale = scale_of(scales_at(panel + 1u, lane, group), lane, part);
            for (var r = 0u; r < ROWS; r++) {
                let by = row_scale(sources[r] + group);
                one[r] = fused(one_scale.x * one_dots[r], by.x, one[r]);
                other[r] = fused(other_scale.x * other_dots[r], by.x, other[r]);
                if (MIN) {
                    var sum = by.y;
                    if (PARTS == 2u) {
                        sum = by[2u + part] * by.x;
                    }
                    one[r] = fused(one_scale.y, sum, one[r]);
                    other[r] = fused(other_scale.y, sum, other[r]);
                }
            }
        }
    }
    if (wanted == pair) {
        for (var r = 0u; r < ROWS; r++) {
            one[r] *= UNIT;
            other[r] *= UNIT;
        }
        take(pair, lane, one, other);
    }
}
