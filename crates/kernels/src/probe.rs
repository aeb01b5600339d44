//! The machine's ceilings, measured: integer multiply-accumulates and bytes read per second; and how soon its cores see what
//! others wrote.
//!
//! Clouds change a core's speed within seconds, so probes are short and meant to be taken beside every sample.

use crate::crew::{Crew, Worker};
use crate::isa::Isa;
use crate::memory::Aligned;
use crate::simd::{Kernel, LANES, Simd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Integer multiply-accumulates per second of the whole crew, by the instructions that products use. Weights
/// are in registers, activations come from the first cache.
#[must_use]
pub fn int8_macs_per_second(isa: Isa, crew: &dyn Crew) -> f64 {
    const ROUNDS: usize = 60_000;
    // Of this call: another may have fewer workers.
    let (size, nanos) = (crew.size(), AtomicU64::new(0));
    crew.run(&|worker: Worker<'_>| {
        // Timed between syncs: waking the crew is not the cores' speed.
        worker.sync();
        let start = Instant::now();
        std::hint::black_box(isa.run(DotPeak { rounds: ROUNDS }));
        worker.sync();
        if worker.rank() == 0 {
            nanos.store(start.elapsed().as_nanos() as u64, Ordering::Relaxed);
        }
    });
    (size * ROUNDS * CHAINS * LANES * 4) as f64 / nanos.into_inner().max(1) as f64 * 1e9
}

/// Runs `rounds` of that instruction on the calling thread and returns how many multiply-accumulates that were. The
/// caller times it.
pub fn multiply(isa: Isa, rounds: usize) -> u64 {
    std::hint::black_box(isa.run(DotPeak { rounds }));
    (rounds * CHAINS * LANES * 4) as u64
}

/// Reads `bytes` once on the calling thread, in blocks of 512 (what is left over is not read). The caller times it.
pub fn read(isa: Isa, bytes: &[u8]) {
    std::hint::black_box(isa.run(ReadAll { bytes }));
}

/// Enough independent sums to hide the latency of any machine's dot product.
const CHAINS: usize = 12;

/// As many of them as fit in registers where a vector is several.
const FEW_CHAINS: usize = 6;

struct DotPeak {
    rounds: usize,
}

impl Kernel for DotPeak {
    type Output = f32;

    #[inline(always)]
    fn run<S: Simd>(self, s: S) -> f32 {
        let mut sums = [s.splat_i(0); CHAINS];
        if S::SUMS < CHAINS {
            for few in sums.as_chunks_mut::<FEW_CHAINS>().0 {
                add_dots(s, few, self.rounds);
            }
        } else {
            add_dots(s, &mut sums, self.rounds);
        }
        let mut total = 0.0;
        for sum in sums {
            total += s.sum(s.reinterpret(sum));
        }
        total
    }
}

const _: () = assert!(CHAINS.is_multiple_of(FEW_CHAINS), "all of the chains are computed");

/// Adds a dot product to each of the sums, so many times.
#[inline(always)]
fn add_dots<S: Simd, const N: usize>(s: S, sums: &mut [S::I; N], rounds: usize) {
    let bytes = [3_u8; 64];
    let mut quants = [[5_i8; 4]; N];
    // SAFETY: the array is as long as the load.
    let weights = unsafe { s.load_bytes(bytes.as_ptr()) };
    let mut local = *sums;
    for _ in 0..rounds {
        // To the compiler they are others in each round, and of each sum: else, where a dot product is several instructions,
        // only the last one, which adds, would be in the loop.
        std::hint::black_box(&mut quants);
        for (sum, quants) in local.iter_mut().zip(&quants) {
            // SAFETY: four activations are read.
            let activations = unsafe { s.activations(quants.as_ptr()) };
            *sum = s.dot(*sum, weights, activations);
        }
    }
    *sums = local;
}

/// How long the crew takes to meet where all come at once; of one worker nothing.
#[must_use]
pub fn time_to_meet(crew: &dyn Crew) -> Duration {
    const MEETINGS: u32 = 2_000;
    let nanos = AtomicU64::new(0);
    crew.run(&|worker: Worker<'_>| {
        worker.sync();
        let start = Instant::now();
        (0..MEETINGS).for_each(|_| worker.sync());
        if worker.rank() == 0 {
            nanos.store(start.elapsed().as_nanos() as u64, Ordering::Relaxed);
        }
    });
    Duration::from_nanos(nanos.into_inner()) / MEETINGS
}

/// Bytes per second that the whole crew reads from memory (a buffer far larger than any cache).
#[derive(Debug)]
pub struct ReadProbe {
    buffer: Aligned<u8>,
}

impl ReadProbe {
    /// A probe over `bytes` of memory.
    #[must_use]
    pub fn new(bytes: usize) -> Self {
        let mut buffer = Aligned::zeroed(bytes);
        buffer.fill(1);
        Self { buffer }
    }

    /// Reads the buffer once.
    #[must_use]
    pub fn bytes_per_second(&self, isa: Isa, crew: &dyn Crew) -> f64 {
        let nanos = AtomicU64::new(0);
        crew.run(&|worker: Worker<'_>| {
            worker.sync();
            let start = Instant::now();
            let lines = worker.share(self.buffer.len() / 64);
            std::hint::black_box(isa.run(ReadAll { bytes: &self.buffer[lines.start * 64..lines.end * 64] }));
            worker.sync();
            if worker.rank() == 0 {
                nanos.store(start.elapsed().as_nanos() as u64, Ordering::Relaxed);
            }
        });
        self.buffer.len() as f64 / nanos.into_inner().max(1) as f64 * 1e9
    }
}

struct ReadAll<'a> {
    bytes: &'a [u8],
}

impl Kernel for ReadAll<'_> {
    type Output = f32;

    #[inline(always)]
    fn run<S: Simd>(self, s: S) -> f32 {
        const STREAMS: usize = 8;
        let one = [1_i8; 4];
        // SAFETY: four bytes.
        let one = unsafe { s.activations(one.as_ptr()) };
        let mut sums = [s.splat_i(0); STREAMS];
        for chunk in self.bytes.chunks_exact(64 * STREAMS) {
            for (i, sum) in sums.iter_mut().enumerate() {
                // SAFETY: the chunk holds `STREAMS` times 64 bytes.
                *sum = s.dot(*sum, unsafe { s.load_bytes(chunk.as_ptr().add(64 * i)) }, one);
            }
        }
        let mut total = 0.0;
        for sum in sums {
            total += s.sum(s.reinterpret(sum));
        }
        total
    }
}
