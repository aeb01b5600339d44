// Which experts a row goes to, and what each counts, as `kernels/src/fused/experts/routing.rs` says. A thread has a row.

override EXPERTS: u32;
/// Experts of a row.
override CHOSEN: u32;
/// 0: softmax over all, 1: over the chosen, 2: logistic functions.
override ROUTING: u32;
/// Of logistic functions: whether weights are divided by their sum.
override DIVIDED: bool;
/// Whether a bias counts in choosing.
override BIAS: bool;
/// Whether all rows go to one more: 0: no, 1: in full, 2: as the logistic function of its score.
override SHARED: u32;

struct Call {
    rows: u32,
    /// What the sum of logistic functions has added to it, and what weights are multiplied with.
    least: f32,
    scale: f32,
}
var<immediate> call: Call;

@group(0) @binding(0) var<storage, read_write> scores: array<f32>;
@group(0) @binding(1) var<storage, read> bias: array<f32>;
@group(0) @binding(2) var<storage, read_write> chosen: array<u32>;
@group(0) @binding(3) var<storage, read_write> weights: array<f32>;

const LEAST: f32 = -3.4e38;

fn logistic(x: f32) -> f32 {
    return divided(1.0, 1.0 + exponential(-x));
}

// What an expert is chosen by: what is no number comes last.
fn key(at: u32, expert: u32) -> f32 {
    var key = scores[at + expert];
    if (BIAS) {
        key = key + bias[expert];
    }
    return select(LEAST, key, (bitcast<u32>(key) & 0x7fffffffu) <= 0x7f800000u);
}

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    nothing = id.z;
    let row = id.x;
    if (row >= call.rows) {
        return;
    }
    let at = row * (EXPERTS + select(0u, 1u, SHARED == 2u));
    let to = row * (CHOSEN + select(0u, 1u, SHARED != 0u));
    if (ROUTING == 2u) {
        for (var expert = 0u; expert < EXPERTS; expert++) {
            scores[at + expert] = logistic(scores[at + expert]);
        }
    }
    // One after the other: the best of those that come behind the one before, in the order of keys and then of numbers.
    var before = 0.0;
    var last = 0u;
    for (var place = 0u; place < CHOSEN; place++) {
        var best = LEAST;
        var found = EXPERTS;
        for (var expert = 0u; expert < EXPERTS; expert++) {
            let own = key(at, expert);
            let is_behind = place == 0u || own < before || (own == before && expert > last);
            if (is_behind && (found == EXPERTS || own > best)) {
                best = own;
                found = expert;
            }
        }
        chosen[to + place] = found;
        before = best;
        last = found;
    }
    let largest = scores[at + chosen[to]];
    var sum = 0.0;
    if (ROUTING == 0u) {
        for (var expert = 0u; expert < EXPERTS; expert++) {
            sum = sum + exponential(scores[at + expert] - largest);
        }
    } else {
        for (var place = 0u; place < CHOSEN; place++) {
            let score = scores[at + chosen[to + place]];
            if (ROUTING == 1u) {
                sum = sum + exponential(score - largest);
            } else {
                sum = sum + score;
            }
        }
    }
    if (ROUTING == 2u) {
        sum = select(1.0, sum + call.least, DIVIDED);
    }
    for (var place = 0u; place < CHOSEN; place++) {
        let score = scores[at + chosen[to + place]];
        if (ROUTING == 2u) {
            weights[to + place] = divided(score, sum) * call.scale;
        } else {
            weights[to + place] = divided(exponential(score - largest), sum);
        }
    }
    if (SHARED != 0u) {
        chosen[to + CHOSEN] = EXPERTS;
        var weight = 1.0;
        if (SHARED == 2u) {
            weight = logistic(scores[at + EXPERTS]);
        }
        weights[to + CHOSEN] = weight;
    }
}
