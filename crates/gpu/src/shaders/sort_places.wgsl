// The places of a pass, sorted by expert and cut into tiles of rows, so that a product reads an expert's weights for several
// rows at once. One workgroup has them all. In which order an expert's places come does not matter: each is computed alone.

override EXPERTS: u32;
/// Experts of a row; those that all rows go to have a place behind them.
override CHOSEN: u32;
override PLACES: u32;
/// Rows of a tile.
override TILE: u32;

struct Call {
    /// Places to sort, rows × CHOSEN.
    count: u32,
    /// Tiles at most.
    tiles: u32,
}
var<immediate> call: Call;

@group(0) @binding(0) var<storage, read> chosen: array<u32>;
// Tiles of four words: expert, first and last but one of its sorted places; behind all tiles the places.
@group(0) @binding(1) var<storage, read_write> routes: array<u32>;

const THREADS: u32 = 64u;
const EXPERTS_MAX: u32 = 512u;
var<workgroup> counts: array<atomic<u32>, EXPERTS_MAX>;

fn place_of(index: u32) -> u32 {
    return index / CHOSEN * PLACES + index % CHOSEN;
}

@compute @workgroup_size(64)
fn main(@builtin(local_invocation_id) local: vec3<u32>) {
    let thread = local.x;
    for (var expert = thread; expert < EXPERTS; expert += THREADS) {
        atomicStore(&counts[expert], 0u);
    }
    workgroupBarrier();
    for (var i = thread; i < call.count; i += THREADS) {
        atomicAdd(&counts[min(chosen[place_of(i)], EXPERTS - 1u)], 1u);
    }
    workgroupBarrier();
    if (thread == 0u) {
        var begin = 0u;
        var tile = 0u;
        for (var expert = 0u; expert < EXPERTS; expert++) {
            let count = atomicLoad(&counts[expert]);
            // From here on: where its next place goes.
            atomicStore(&counts[expert], begin);
            for (var at = 0u; at < count && tile < call.tiles; at += TILE) {
                routes[tile * 4u] = expert;
                routes[tile * 4u + 1u] = begin + at;
                routes[tile * 4u + 2u] = begin + min(at + TILE, count);
                tile++;
            }
            begin += count;
        }
        for (; tile < call.tiles; tile++) {
            routes[tile * 4u + 1u] = 0u;
            routes[tile * 4u + 2u] = 0u;
        }
    }
    workgroupBarrier();
    for (var i = thread; i < call.count; i += THREADS) {
        let place = place_of(i);
        let to = atomicAdd(&counts[min(chosen[place], EXPERTS - 1u)], 1u);
        routes[call.tiles * 4u + to] = place;
    }
}
