//! What a step of drafting costs after contexts of different lengths:
//! `cargo run --release -p duet-bench --example draft_cost`.
//!
//! The text is drawn from phrases that come again and again, as those of real conversations do, so that there is always
//! something to draft. A step is a draft of 15 rows and one token that is learned; medians of the last 500.

use duet_speculate::confidence::Confidence;
use duet_speculate::{Known, Method, Speculator, WORTH_MIN};
use duet_types::TokenId;
use std::time::{Duration, Instant};

const STEPS: usize = 500;
const ROWS: usize = 15;
const LENGTHS: [usize; 6] = [1 << 10, 1 << 11, 1 << 12, 1 << 13, 1 << 14, 1 << 15];

fn main() {
    for method in [Method::Pld, Method::Sam, Method::CoordGen, Method::Duet] {
        for length in LENGTHS {
            let text = text(length + STEPS);
            let mut speculator = Speculator::new(method.drafters(&Known::default()), Confidence::default());
            speculator.read(&text[..length]);
            let mut times: Vec<Duration> = text[length..].iter().map(|&token| step(&mut speculator, token)).collect();
            times.sort_unstable();
            println!(
                "{:10} {length:6} tokens: {:5.2} us a step, {:5.1} bytes a token",
                method.to_string(),
                times[STEPS / 2].as_secs_f64() * 1e6,
                speculator.bytes() as f64 / (length + STEPS) as f64,
            );
        }
    }
}

fn step(speculator: &mut Speculator, token: TokenId) -> Duration {
    let start = Instant::now();
    std::hint::black_box(speculator.draft(ROWS, WORTH_MIN));
    speculator.accept(token);
    start.elapsed()
}

/// Phrases of 4 to 19 tokens, the first of them the most frequent.
fn text(len: usize) -> Vec<TokenId> {
    let mut state = 1_u64;
    let mut random = move |below: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    };
    let phrases: Vec<Vec<TokenId>> =
        (0..100).map(|_| (0..4 + random(16)).map(|_| TokenId(random(49_152) as u32)).collect()).collect();
    let mut text = Vec::new();
    while text.len() < len {
        let phrase = random(phrases.len() as u64) * random(phrases.len() as u64) / phrases.len() as u64;
        text.extend(&phrases[phrase as usize]);
    }
    text.truncate(len);
    text
}
