// Spans of attention, merged in order, as `kernels/src/attention` merges them: those of one workgroup, or those that several have
// left. (Behind `kv_layout.wgsl`.)

/// Of all spans before the one under way.
var<private> merged: array<f32, EACH>;
var<private> merged_largest: f32;
var<private> merged_total: f32;

// Merges a span with those before.
fn merge(found: array<f32, EACH>, largest: f32, total: f32) {
    let most = max(merged_largest, largest);
    let kept = power_below(merged_largest - most);
    let taken = power_below(largest - most);
    merged_total = fused(merged_total, kept, rounded(total * taken));
    merged_largest = most;
    for (var e = 0u; e * THREADS < DIM; e++) {
        merged[e] = fused(merged[e], kept, rounded(found[e] * taken));
    }
}

// What was merged, as the row's attention to a head. All threads come here.
fn finish(thread: u32, row: u32, number: u32) {
    workgroupBarrier();
    for (var e = 0u; e * THREADS < DIM; e++) {
        if (e * THREADS + thread < DIM) {
            head[e * THREADS + thread] = merged[e];
        }
    }
    workgroupBarrier();
    if (FORMAT != 0u) {
        turn(thread);
    }
    let inverse = divided(1.0, merged_total);
    let to = (row * HEADS + number) * DIM;
    for (var i = thread; i < DIM; i += THREADS) {
        attended[to + i] = head[i] * inverse;
    }
}

// Where a span apart is left.
fn place_apart(row: u32, number: u32, span: u32) -> u32 {
    return ((row * HEADS + number) * call.spans + span) * (DIM + 2u);
}

// Merges spans that other workgroups have left. All threads come here.
fn merge_apart(thread: u32, row: u32, number: u32, first: u32, last: u32) {
    for (var span = first / SPAN; span * SPAN < last; span++) {
        let at = place_apart(row, number, span);
        var found: array<f32, EACH>;
        for (var e = 0u; e * THREADS < DIM; e++) {
            if (e * THREADS + thread < DIM) {
                found[e] = apart[at + 2u + e * THREADS + thread];
            }
        }
        merge(found, apart[at], apart[at + 1u]);
    }
    finish(thread, row, number);
}

// Leaves a span for those who merge.
fn leave(thread: u32, at: u32, found: array<f32, EACH>, largest: f32, total: f32) {
    if (thread == 0u) {
        apart[at] = largest;
        apart[at + 1u] = total;
    }
    for (var e = 0u; e * THREADS < DIM; e++) {
        if (e * THREADS + thread < DIM) {
            apart[at + 2u + e * THREADS + thread] = found[e];
        }
    }
}
