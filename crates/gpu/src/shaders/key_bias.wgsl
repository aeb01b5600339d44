// What the bias of keys, which the cache's keys are without, adds to scores (`kernels/src/attention/key_bias.rs`). (Behind
// `kv_layout.wgsl`.)

/// What the bias of keys adds to scores, by pair: a sum that turns along with cosines, and one with sines. Of quick pairs, as
/// the page under way turns them.
var<workgroup> along: array<f32, DIM_MAX / 2u>;
var<workgroup> across: array<f32, DIM_MAX / 2u>;
var<workgroup> quick_along: array<f32, DIM_MAX / 2u>;
var<workgroup> quick_across: array<f32, DIM_MAX / 2u>;
/// Of dimensions that are not turned; and of all slow pairs, for the pages of 64 that a thread each computes.
var<workgroup> still: f32;
var<workgroup> slow: array<f32, THREADS>;

// What the bias adds, of a query that is not turned. All threads come here.
fn begin_bias(thread: u32, kv_head: u32) {
    let bias = kv_head * DIM;
    for (var pair = thread; pair < PAIRS; pair += THREADS) {
        let one = head[pair];
        let other = head[pair + PAIRS];
        along[pair] = fused(one, key_bias[bias + pair], rounded(other * key_bias[bias + pair + PAIRS]));
        across[pair] = fused(other, key_bias[bias + pair], -rounded(one * key_bias[bias + pair + PAIRS]));
    }
    if (thread == 0u) {
        var sum = 0.0;
        for (var i = 2u * PAIRS; i < DIM; i++) {
            sum = fused(head[i], key_bias[bias + i], sum);
        }
        still = sum;
    }
    workgroupBarrier();
}

// What slow pairs add in a page.
fn slow_in(page: u32) -> f32 {
    var sums: array<f32, 2>;
    for (var pair = 0u; pair < PAIRS; pair++) {
        if (key_bias[quick_numbers() + pair] < 0.0) {
            let by = page_angles[page * PAIRS + pair];
            let sum = fused(by.x, along[pair], fused(by.y, across[pair], sums[pair % 2u]));
            sums[pair % 2u] = sum;
        }
    }
    return (sums[0] + sums[1]) + still;
}

// Makes ready what the bias adds in a page. All threads come here.
fn turn_bias(thread: u32, page: u32, first: u32, last: u32) {
    if (page == first || page % THREADS == 0u) {
        slow[thread] = slow_in(min(page / THREADS * THREADS + thread, last - 1u));
    }
    for (var number = thread; number < QUICK; number += THREADS) {
        let pair = u32(key_bias[quick_pairs() + number]);
        let by = page_angles[page * PAIRS + pair];
        quick_along[number] = fused(by.x, along[pair], rounded(by.y * across[pair]));
        quick_across[number] = rounded(by.x * across[pair]) - rounded(by.y * along[pair]);
    }
    workgroupBarrier();
}

fn biased(score: f32, page: u32, position: u32) -> f32 {
    var sum = score + slow[page % THREADS];
    for (var number = 0u; number < QUICK; number++) {
        let by = quick_angle(number, position);
        sum = fused(by.x, quick_along[number], fused(by.y, quick_across[number], sum));
    }
    return sum;
}
