// The best candidates of each row, best first: the largest logit, and of equals the smaller token. A workgroup has a block of a
// row's candidates. At first these are its logits, and each block brings its best; then they are what the blocks have brought,
// and one block has all of a row's.
//
// A thread holds the best of its candidates. In each round the workgroup finds the best of all, whose thread then looks for its
// next one. Logits are compared as integers of the same order, so that nothing is rounded or flushed, and come back as they are.

/// Whether candidates are logits, of one token after the other; else pairs of a logit and its token.
override LOGITS: bool;

struct Call {
    /// Candidates of a row, and of a block.
    candidates: u32,
    block: u32,
    /// Blocks of a row.
    blocks: u32,
    /// How many are wanted of each.
    count: u32,
}
var<immediate> call: Call;

@group(0) @binding(0) var<storage, read> candidates: array<u32>;
// Pairs of a logit and its token.
@group(0) @binding(1) var<storage, read_write> best: array<u32>;

const THREADS: u32 = 128u;
/// Rounds in which two become one.
const HALVINGS: u32 = 7u;

/// What stands where no candidate is left.
const NO_TOKEN: u32 = 0xffffffffu;
const NO_LOGIT: u32 = 0xff800000u;

struct Candidate {
    /// 0 for none.
    key: u32,
    token: u32,
    logit: u32,
}

var<workgroup> keys: array<u32, THREADS>;
var<workgroup> tokens: array<u32, THREADS>;

// A number whose order is that of logits; 0 for what is never chosen: what is no number, and negative infinity. The two zeros
// are equal.
fn key_of(logit: u32) -> u32 {
    let size = logit & 0x7fffffffu;
    if (size > 0x7f800000u || logit == NO_LOGIT) {
        return 0u;
    }
    if (size == 0u) {
        return 0x80000000u;
    }
    return select(logit | 0x80000000u, ~logit, (logit & 0x80000000u) != 0u);
}

fn is_better(key: u32, token: u32, than_key: u32, than_token: u32) -> bool {
    return key > than_key || (key == than_key && token < than_token);
}

fn candidate(row: u32, index: u32) -> Candidate {
    let at = row * call.candidates + index;
    if (LOGITS) {
        let logit = candidates[at];
        return Candidate(key_of(logit), index, logit);
    }
    let logit = candidates[at * 2u];
    return Candidate(key_of(logit), candidates[at * 2u + 1u], logit);
}

// The best of a thread's candidates behind the last that was chosen.
fn next(row: u32, begin: u32, end: u32, last_key: u32, last_token: u32) -> Candidate {
    var found = Candidate(0u, NO_TOKEN, NO_LOGIT);
    for (var index = begin; index < end; index += THREADS) {
        let own = candidate(row, index);
        let is_left = own.key != 0u && is_better(last_key, last_token, own.key, own.token);
        if (is_left && is_better(own.key, own.token, found.key, found.token)) {
            found = own;
        }
    }
    return found;
}

@compute @workgroup_size(128)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_id) local: vec3<u32>) {
    let thread = local.x;
    let row = group.y;
    let begin = group.x * call.block + thread;
    let end = min((group.x + 1u) * call.block, call.candidates);
    let to = (row * call.blocks + group.x) * call.count;
    // Everything is behind this.
    var own = next(row, begin, end, 0xffffffffu, 0u);
    for (var place = 0u; place < call.count; place++) {
        keys[thread] = own.key;
        tokens[thread] = own.token;
        workgroupBarrier();
        for (var halving = 1u; halving <= HALVINGS; halving++) {
            let half = THREADS >> halving;
            let other = thread + half;
            if (thread < half) {
                if (is_better(keys[other], tokens[other], keys[thread], tokens[thread])) {
                    keys[thread] = keys[other];
                    tokens[thread] = tokens[other];
                }
            }
            workgroupBarrier();
        }
        let key = keys[0];
        let token = tokens[0];
        workgroupBarrier();
        // Where nothing is left, the first thread says so.
        let is_own = own.key == key && own.token == token;
        if (is_own && (key != 0u || thread == 0u)) {
            best[(to + place) * 2u] = own.logit;
            best[(to + place) * 2u + 1u] = own.token;
            own = next(row, begin, end, key, token);
        }
    }
}
