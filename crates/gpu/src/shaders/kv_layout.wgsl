// Where keys and values of a layer lie, in the cache's own pages (`kernels/src/attention/layout.rs`), and how a group of
// dimensions is turned (`rotation.rs`). A workgroup has one head of THREADS threads.

override DIM: u32;
override KV_HEADS: u32;
/// 0: half precision, 1: eight bits, 2: eight bits and values of four.
override FORMAT: u32;
/// Words from one page to the next: a page of the layer, or of all layers.
override PAGE_WORDS: u32;
/// Words of a head of a page, and where its parts begin in it.
override HEAD_WORDS: u32;
override KEY_SCALES: u32;
override VALUES: u32;
override VALUE_SCALES: u32;
override VALUE_CENTRES: u32;

/// Pairs of dimensions that rope turns.
override PAIRS: u32;
/// Whether keys are without their bias, and how many pairs of it are quick (`kernels/src/attention/key_bias.rs`).
override BIASED: bool;
override QUICK: u32;

const PAGE: u32 = 64u;
const LANES: u32 = 16u;
const GROUP: u32 = 32u;
const DIM_MAX: u32 = 256u;
/// What scales count in.
const SCALE_UNIT: f32 = 1.0 / 64.0;

/// Groups of a head, and fours of dimensions. Arrays that threads share are no longer than a head needs: the less memory a workgroup
/// has, the more of them run side by side.
override GROUPS: u32 = (DIM + GROUP - 1u) / GROUP;
override FOURS: u32 = DIM / 4u;

/// A head.
var<workgroup> head: array<f32, DIM>;
var<workgroup> largest_of_four: array<f32, FOURS>;

// Where in `key_bias` the number of each pair among the quick ones is, behind the biases of all heads: -1 if it is slow.
fn quick_numbers() -> u32 {
    return KV_HEADS * DIM;
}

// The pairs of the quick ones.
fn quick_pairs() -> u32 {
    return quick_numbers() + PAIRS;
}

// Cosine and sine of a quick pair from the middle of a page to a position.
fn quick_angle(number: u32, position: u32) -> vec2<f32> {
    let at = quick_pairs() + QUICK + number * 2u * PAGE + position;
    return vec2<f32>(key_bias[at], key_bias[at + PAGE]);
}

// The first word that a slot's page has of a head. A slot is its page's number × 64 and its position there.
fn page_of(slot: u32, kv_head: u32) -> u32 {
    return slot / PAGE * PAGE_WORDS + call.layer + kv_head * HEAD_WORDS;
}

// The largest magnitude of every four dimensions of the head, for who then asks for a group's. All threads come here.
fn find_largest(thread: u32) {
    for (var four = thread; four < FOURS; four += THREADS) {
        let i = four * 4u;
        largest_of_four[four] = max(max(abs(head[i]), abs(head[i + 1u])), max(abs(head[i + 2u]), abs(head[i + 3u])));
    }
    workgroupBarrier();
}

fn largest_in(group: u32) -> f32 {
    var largest = 0.0;
    for (var i = 0u; i < GROUP / 4u; i++) {
        let four = group * (GROUP / 4u) + i;
        if (four < FOURS) {
            largest = max(largest, largest_of_four[four]);
        }
    }
    return largest;
}

// Turns each group of the head by Hadamard's matrix, or back. All threads come here; the head is whole before and after.
fn turn(thread: u32) {
    for (var bit = 16u; bit > 0u; bit /= 2u) {
        var turned: array<f32, EACH>;
        for (var e = 0u; e * THREADS < DIM; e++) {
            let i = e * THREADS + thread;
            if (i < DIM) {
                let own = head[i];
                let is_whole = i / GROUP * GROUP + GROUP <= DIM;
                if (bit == 16u && !is_whole) {
                    turned[e] = own;
                } else {
                    let other = head[i ^ bit];
                    turned[e] = select(own + other, other - own, (i & bit) != 0u);
                }
                if (bit == 1u) {
                    turned[e] *= select(0.25, 0.1767767, is_whole);
                }
            }
        }
        workgroupBarrier();
        for (var e = 0u; e * THREADS < DIM; e++) {
            let i = e * THREADS + thread;
            if (i < DIM) {
                head[i] = turned[e];
            }
        }
        workgroupBarrier();
    }
}
