// What a norm takes off a row and multiplies it with: its mean, and the inverse of its root mean square or deviation. Sixteen
// threads of a workgroup have every sixteenth value each, as the CPU's vectors have: sums are added in the same order
// (`kernels/src/rows.rs`, `simd::sum`), and have the same bits. The file behind it has the `values`, LANES, and how many `threads`
// there are.

override COLUMNS: u32;
/// Whether the mean is taken off before: a layer norm.
override CENTRED: bool;

/// Values of a row that all threads fetch together: one after the other, each lane would wait for memory each time.
override FETCHED: u32;
/// And that a lane then reads together.
const READ: u32 = 8u;
var<workgroup> fetched: array<f32, FETCHED>;
var<workgroup> lanes: array<f32, LANES>;

// Fetches values of a row, as many as there are from the one that `at` counts to `end`. All threads come here.
fn fetch(thread: u32, at: u32, end: u32) {
    for (var i = thread; i < min(FETCHED, end - at); i += threads()) {
        fetched[i] = values[at + i];
    }
    workgroupBarrier();
}

// The sum of what the first threads have, in their registers' order. All threads come here.
fn lane_sum(thread: u32, own: f32) -> f32 {
    if (thread < LANES) {
        lanes[thread] = own;
    }
    workgroupBarrier();
    var four: array<f32, 4>;
    for (var i = 0u; i < 4u; i++) {
        four[i] = (lanes[i] + lanes[i + 8u]) + (lanes[i + 4u] + lanes[i + 12u]);
    }
    workgroupBarrier();
    return (four[0] + four[2]) + (four[1] + four[3]);
}

// Adds to a lane's sum the squares of how far the fetched values from `first` on are from the mean.
fn squares(before: f32, first: u32, count: u32, mean: f32) -> f32 {
    var sum = before;
    var i = first;
    for (; i + (READ - 1u) * LANES < count; i += READ * LANES) {
        var far: array<f32, READ>;
        for (var k = 0u; k < READ; k++) {
            far[k] = fetched[i + k * LANES] - mean;
        }
        for (var k = 0u; k < READ; k++) {
            sum = fused(far[k], far[k], sum);
        }
    }
    for (; i < count; i += LANES) {
        let far = fetched[i] - mean;
        sum = fused(far, far, sum);
    }
    return sum;
}

// Of the row whose values begin at `start`. All threads come here, and all find it.
fn moments_of(thread: u32, start: u32, epsilon: f32) -> vec2<f32> {
    let whole = start + COLUMNS / LANES * LANES;
    let end = start + COLUMNS;
    // Where a thread that is no lane's begins: behind all that was fetched.
    let first = select(FETCHED, thread, thread < LANES);
    var mean = 0.0;
    if (CENTRED) {
        var own = 0.0;
        for (var at = start; at < whole; at += FETCHED) {
            fetch(thread, at, whole);
            for (var i = first; i < min(FETCHED, whole - at); i += LANES) {
                own = own + fetched[i];
            }
            workgroupBarrier();
        }
        let all = lane_sum(thread, own);
        var rest = 0.0;
        for (var at = whole; at < end; at++) {
            rest = rest + values[at];
        }
        mean = divided(all + rest, f32(COLUMNS));
    }
    var own = zero();
    for (var at = start; at < whole; at += FETCHED) {
        fetch(thread, at, whole);
        own = squares(own, first, min(FETCHED, whole - at), mean);
        workgroupBarrier();
    }
    let all = lane_sum(thread, own);
    var rest = 0.0;
    for (var at = whole; at < end; at++) {
        let far = values[at] - mean;
        rest = rest + rounded(far * far);
    }
    return vec2<f32>(mean, divided(1.0, root(divided(all + rest, f32(COLUMNS)) + epsilon)));
}
