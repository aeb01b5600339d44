// What the bias of keys, which the cache's keys are without, adds to scores (`kernels/src/attention/key_bias.rs`). (Behind
// `kv_layout.wgsl`.)

/// Pairs of which the bias is known, and pages that are turned at once, times quick pairs: one where there is no bias, since there is no
/// array of nothing.
override BIASED_PAIRS: u32 = select(1u, PAIRS, BIASED);
override TURNED: u32 = select(1u, SIDE * QUICK, BIASED && QUICK > 0u);

/// What the bias of keys adds to scores, by pair: a sum that turns along with cosines, and one with sines. The same of slow pairs
/// alone, zero for quick ones; and of quick pairs, as the pages under way turn them.
var<workgroup> along: array<f32, BIASED_PAIRS>;
var<workgroup> across: array<f32, BIASED_PAIRS>;
var<workgroup> slow_along: array<f32, BIASED_PAIRS>;
var<workgroup> slow_across: array<f32, BIASED_PAIRS>;
var<workgroup> quick_along: array<f32, TURNED>;
var<workgroup> quick_across: array<f32, TURNED>;
/// Of dimensions that are not turned; and of all slow pairs, for the pages of 64 that a thread each computes.
var<workgroup> still: f32;
var<workgroup> slow: array<f32, SLOW_PAGES>;
const SLOW_PAGES: u32 = 64u;

// What the bias adds, of a query that is not turned. All threads come here.
fn begin_bias(thread: u32, kv_head: u32) {
    let bias = kv_head * DIM;
    for (var pair = thread; pair < PAIRS; pair += THREADS) {
        let one = head[pair];
        let other = head[pair + PAIRS];
        along[pair] = fused(one, key_bias[bias + pair], rounded(other * key_bias[bias + pair + PAIRS]));
        across[pair] = fused(other, key_bias[bias + pair], -rounded(one * key_bias[bias + pair + PAIRS]));
        let is_slow = key_bias[quick_numbers() + pair] < 0.0;
        slow_along[pair] = select(0.0, along[pair], is_slow);
        slow_across[pair] = select(0.0, across[pair], is_slow);
    }
    if (thread == 0u) {
        var sum = zero();
        for (var i = 2u * PAIRS; i < DIM; i++) {
            sum = fused(head[i], key_bias[bias + i], sum);
        }
        still = sum;
    }
    workgroupBarrier();
}

// What a pair adds to a sum, turned by an angle.
fn turned(by: vec2<f32>, pair: u32, sum: f32) -> f32 {
    return fused(by.x, slow_along[pair], fused(by.y, slow_across[pair], sum));
}

// What slow pairs add in a page: even ones, odd ones, and what is not turned. Quick ones add zeros, so that nothing is decided by
// what is read, and all of it is read at once.
fn slow_in(page: u32) -> f32 {
    let angles = page * PAIRS;
    var even = zero();
    var odd = zero();
    for (var pair = 0u; pair + 1u < PAIRS; pair += 2u) {
        even = turned(page_angles[angles + pair], pair, even);
        odd = turned(page_angles[angles + pair + 1u], pair + 1u, odd);
    }
    if (PAIRS % 2u == 1u) {
        even = turned(page_angles[angles + PAIRS - 1u], PAIRS - 1u, even);
    }
    return (even + odd) + still;
}

// Makes ready what the bias adds in the pages from `at`, of which the thread has one. All threads come here.
fn turn_bias(side: u32, lane: u32, at: u32, page: u32, first: u32, last: u32) {
    if (side == 0u && (at == first || at % SLOW_PAGES == 0u)) {
        slow[lane] = slow_in(min(at / SLOW_PAGES * SLOW_PAGES + lane, last - 1u));
    }
    for (var number = lane; number < QUICK; number += PAGE) {
        let pair = u32(key_bias[quick_pairs() + number]);
        let by = page_angles[min(page, last - 1u) * PAIRS + pair];
        quick_along[side * QUICK + number] = fused(by.x, along[pair], rounded(by.y * across[pair]));
        quick_across[side * QUICK + number] = rounded(by.x * across[pair]) - rounded(by.y * along[pair]);
    }
    workgroupBarrier();
}

fn biased(score: f32, side: u32, page: u32, position: u32) -> f32 {
    var sum = score + slow[page % SLOW_PAGES];
    let first = side * QUICK;
    for (var number = 0u; number < QUICK; number++) {
        let by = quick_angle(number, position);
        sum = fused(by.x, quick_along[first + number], fused(by.y, quick_across[first + number], sum));
    }
    return sum;
}
