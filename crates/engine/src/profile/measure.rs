//! Measuring a profile: how weights are read, anchors of each lane and the team, launches, contention.
//!
//! The roofline's parameters come from passes of the model itself: one row (memory-bound), a chunk (compute-bound), and
//! sizes in between, which say how much of the shorter time stays exposed. With `q = Q / B_eff` and `w = W / P_eff` of a
//! row, `T(n) = max(n·w, q) + exposed · min(n·w, q)`: for each value of `exposed`, two sizes give `q` and `w`, and the
//! value is taken that predicts the others best; where there are experts, `q` grows with the share of them that `n` rows
//! are taken to read. Feed-forward says that; the projection to queries, keys and values has norms,
//! rope and the cache beside its products, and attention its masked parts: what a row takes for these is what is left.
//! Over a few rows, where drafts are, every size is timed, and what the roofline misses is kept as a factor.
//! Whatever a busy machine lets them be, they stay within what a profile's file may hold, so that what was saved is loaded.
//! The fastest of several samples counts: what else runs on the machine can only make a sample slower, and the scheduler
//! corrects for a slower machine by itself.

use super::bench::{Bench, Part, Shape, fastest, median, on, start};
use super::effort::Effort;
use super::times::{FEW_POSITIONS, Pace, ROWS, SIZED_POSITIONS, Times, ends};
use super::{Measured, Profile, ProfileError, attention as attending, capabilities, copies, layers, read_ahead};
use crate::executors::Site;
use crate::speed_probe::SpeedProbe;
use duet_device::{CoreTime, CpuLanes};
use duet_driver::Rates;
use duet_kernels::crew::Crew;
use duet_kernels::memory::FreedAtOnce;
use duet_model::Model;
use duet_scheduler::heg::{Load, SequenceWise};
use duet_scheduler::machine::{Anchors, Contention, FewRows, Lane, LanePair, PerRow, Team};
use duet_scheduler::{Machine, Yields, few_rows};
use duet_types::{LaneId, LaneSet, Nanos, Tokens};
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::{Duration, Instant, SystemTime};

/// Measures the lanes with this model's kernels.
///
/// # Errors
/// [`ProfileError`].
pub(crate) fn measure(of: &Measured<'_>, lanes: &CpuLanes, effort: Effort) -> Result<Profile, ProfileError> {
    let Measured { model, kv, cpu, executors } = *of;
    // Passes of many sizes come one after the other, beside all weights.
    let _freed = FreedAtOnce::begin();
    let bench = Bench::new(Arc::clone(model), Arc::clone(executors), kv, SIZED_POSITIONS + FEW_POSITIONS);
    let all = lanes.all();
    let cores = all.without(executors.device_lanes());
    let of_cores = launch_cost(lanes, cores)?;
    let read_ahead = read_ahead::try_all(&bench, lanes, cores)?;
    let mut probe = Probes::new(model);
    let mut machine = Machine::of(Vec::new());
    for lane in executors.device_lanes().iter() {
        attending::give_what_pays(&bench, lanes, [LaneSet::from_iter([lane]), cores], effort)?;
    }
    let (mut seen, mut waited) = (Vec::new(), 0.0_f64);
    for (lane, &threads) in all.iter().zip(&cpu.lanes) {
        let team = LaneSet::from_iter([lane]);
        let anchors = match executors.device(lane) {
            Some(_) => anchors(&bench, lanes, team, launch_cost(lanes, team)?, effort)?,
            None => {
                let before = lanes.core_times();
                let anchors = anchors_of_cores(&bench, lanes, (team, threads), of_cores, effort, &mut seen)?;
                let (at, now) = (usize::from(lane.0), lanes.core_times());
                waited = waited.max(waited_share(&now[at], &before[at]));
                anchors
            }
        };
        probe.take();
        let name = match executors.device(lane) {
            Some(device) => device.name.clone(),
            None if threads == 1 => format!("cpu{lane}"),
            None => format!("cpu{lane}x{threads}"),
        };
        let mut capabilities = capabilities::of_lane(of, lane);
        if executors.device(lane).is_some() {
            capabilities.uninterruptible =
                capabilities::chunk_time(&super::heg(model, kv), &anchors, capabilities.attention);
            capabilities.memory = copies::memory(&bench, lanes, lane)?;
        }
        machine.lanes.push(Lane::new(name, capabilities, anchors));
    }
    layers::plan_all(of, &mut machine);
    let bench = bench.of_teams(&machine);
    for team in capabilities::teams(&machine) {
        let launch = if team == cores { of_cores } else { launch_cost(lanes, team)? };
        let anchors = anchors(&bench, lanes, team, launch, effort)?;
        machine.teams.push(Team { lanes: team, anchors });
    }
    probe.take();
    if machine.lanes.len() > 1 {
        machine.contention = contention(&bench, lanes, [0, machine.lanes.len() - 1], effort)?;
        for pair in capabilities::pairs(&machine) {
            let contention = contention(&bench, lanes, pair, effort)?;
            machine.pairs.push(LanePair { lanes: pair.iter().map(|&lane| LaneId(lane as u8)).collect(), contention });
        }
    }
    let measured_at = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let (read_ahead, waited, probe) = (Some(read_ahead), Some(waited), probe.fastest);
    Ok(Profile { of: of.subject(), machine, measured_at, read_ahead, probe, waited, is_settled: false })
}

/// The share of the time that some threads wanted their cores in which they waited for them; zero where nobody tells.
fn waited_share(now: &[Option<CoreTime>], before: &[Option<CoreTime>]) -> f64 {
    let times = now.iter().zip(before).filter_map(|(now, before)| Some((*now)?.since((*before)?)));
    let (ran, waited) = times.fold((0, 0), |(ran, waited), time| (ran + time.ran.0, waited + time.waited.0));
    waited as f64 / (ran + waited).max(1) as f64
}

/// Probes between the measurements: of each turn the median, of the turns the fastest. A sample of the anchors takes as
/// long as a turn, and the fastest of them counts too.
pub(super) struct Probes {
    probe: SpeedProbe,
    pub(super) fastest: Rates,
}

impl Probes {
    pub(super) fn new(model: &Arc<Model>) -> Self {
        let fastest = Rates { macs_per_s: 0.0, bytes_per_s: 0.0 };
        let mut probes = Self { probe: SpeedProbe::new(Arc::clone(model)), fastest };
        probes.take();
        probes
    }

    pub(super) fn take(&mut self) {
        let turn: Vec<Rates> = (0..PROBES).map(|_| self.probe.take()).collect();
        let of = |rate: fn(&Rates) -> f64| median(turn.iter().map(rate).collect());
        self.fastest.macs_per_s = self.fastest.macs_per_s.max(of(|rates| rates.macs_per_s));
        self.fastest.bytes_per_s = self.fastest.bytes_per_s.max(of(|rates| rates.bytes_per_s));
    }
}

/// In a turn: some tens of milliseconds.
const PROBES: usize = 48;

/// A lane of cores that was measured.
struct Seen {
    threads: usize,
    ends: [f64; 2],
    anchors: Anchors,
}

/// The anchors of a lane of cores. In a hurry, one that has as many threads as an earlier one, and takes as long as that at
/// both ends of the roofline, has its anchors.
fn anchors_of_cores(
    bench: &Bench,
    lanes: &CpuLanes,
    (team, threads): (LaneSet, usize),
    launch: Nanos,
    effort: Effort,
    seen: &mut Vec<Seen>,
) -> Result<Anchors, ProfileError> {
    if effort == Effort::Thorough {
        return anchors(bench, lanes, team, launch, effort);
    }
    let (timed, pace) = (bench.clone(), Pace::of(effort));
    let ends = on(lanes, team, move |site| ends(&timed, site, pace))??;
    let is_like = |other: &&Seen| {
        let as_long = ends.iter().zip(other.ends).all(|(one, other)| (one / other - 1.0).abs() < ALIKE);
        other.threads == threads && as_long
    };
    if let Some(like) = seen.iter().find(is_like) {
        return Ok(like.anchors);
    }
    let anchors = anchors(bench, lanes, team, launch, effort)?;
    seen.push(Seen { threads, ends, anchors });
    Ok(anchors)
}

/// Two cores of a kind differ by less, and two kinds of cores by more.
const ALIKE: f64 = 0.1;

fn anchors(
    bench: &Bench,
    lanes: &CpuLanes,
    team: LaneSet,
    launch: Nanos,
    effort: Effort,
) -> Result<Anchors, ProfileError> {
    let (timed, pace) = (bench.clone(), Pace::of(effort));
    let times = on(lanes, team, move |site| Times::take(&timed, site, pace))??;
    let (rows, context) = (&times.reach.rows[..], times.reach.context);
    let projection = bench.timed(team, Part::Qkv).qkv;
    let product = if bench.product(team) == Part::Qkv { projection } else { bench.timed(team, Part::Ffn).ffn };
    let read = |rows: f64| product.weights_read(rows) / product.all_weights().max(1.0);
    let fit = fit(rows, &times.ffn, read);
    let largest = rows[rows.len() - 1] as f64;
    let timed = bench.timed(team, Part::Attention).attention;
    let (attention_macs_per_s, attention_row) = attention(largest, context as f64, &timed, &times);
    let recurrent = bench.recurrent();
    let attention_row = (1.0 - recurrent) * attention_row + recurrent * times.recurrence / largest;
    let mut anchors = Anchors {
        macs_per_s: product.macs_per_row / fit.row,
        attention_macs_per_s,
        bytes_per_s: product.all_weights() / fit.weights,
        launch,
        exposed: fit.exposed,
        per_row: PerRow { qkv: 0.0, attention: attention_row.min(PerRow::MOST) },
        few_rows: few_rows(&fit, &times.few, read),
    };
    let products = Fit {
        weights: projection.weight_bytes / anchors.bytes_per_s,
        row: projection.macs_per_row / anchors.macs_per_s,
        exposed: fit.exposed,
    };
    let beside = (times.qkv - products.time(largest, 1.0)).max(0.0);
    anchors.per_row = PerRow { qkv: (beside / largest).min(PerRow::MOST), ..anchors.per_row };
    Ok(anchors)
}

/// What the roofline misses over a few rows. More rows never take less, whatever noise says; of those that were not timed
/// it misses nothing.
fn few_rows(fit: &Fit, times: &[f64], read: impl Fn(f64) -> f64) -> FewRows {
    let mut most = 0.0_f64;
    FewRows::new(std::array::from_fn(|at| {
        let Some(&time) = times.get(at) else { return 1.0 };
        most = most.max(time);
        let rows = f64::from(few_rows::SIZES[at]);
        ((most / fit.time(rows, read(rows))) as f32).clamp(FewRows::LEAST, FewRows::MOST)
    }))
}

/// Multiply-accumulates a second of attention, and the seconds that a row takes beside them: `rows` of them take the
/// same of the latter at no context and at a long one.
fn attention(rows: f64, context: f64, of: &SequenceWise, times: &Times) -> (f64, f64) {
    let macs = |context: f64| {
        let positions = Tokens(context as u32)..Tokens((context + rows) as u32);
        of.pairs(&Load::default().with_rows(positions, Yields::Context)) * of.macs_per_pair
    };
    let (near, far) = (macs(0.0), macs(context));
    let rate = (far - near) / (times.attention_far - times.attention_near);
    if rate.is_finite() && rate > 0.0 && near / rate < times.attention_near {
        (rate, (times.attention_near - near / rate) / rows)
    } else {
        // No context worth the name, or noise: all of it is products.
        (far / times.attention_far, 0.0)
    }
}

/// What the times of a roofline's sizes say.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Fit {
    /// Seconds to read all weights.
    weights: f64,
    /// Seconds to compute a row.
    row: f64,
    exposed: f64,
}

/// `read` gives the share of the weights that a number of rows reads.
fn fit(sizes: &[usize], times: &[f64], read: impl Fn(f64) -> f64) -> Fit {
    let (first, last) = (times[0], times[times.len() - 1]);
    let largest = sizes[sizes.len() - 1] as f64;
    let (least, most) = (read(1.0).max(f64::MIN_POSITIVE), read(largest));
    let candidates = (0..=50).map(|step| {
        let exposed = f64::from(step) / 50.0;
        // T(1) = q·read(1) + e·w and T(n) = n·w + e·q·read(n), one memory-bound and the other compute-bound.
        let hidden = exposed * most / least;
        let row = ((last - hidden * first) / (largest - hidden * exposed)).max(1e-9);
        let weights = ((first - exposed * row) / least).max(1e-9);
        Fit { weights, row, exposed }
    });
    let error = |fit: &Fit| {
        let predicted = sizes.iter().map(|&rows| fit.time(rows as f64, read(rows as f64)));
        let relative = predicted.zip(times).map(|(predicted, time)| (predicted / time - 1.0).powi(2));
        relative.sum::<f64>()
    };
    candidates.min_by(|a, b| error(a).total_cmp(&error(b))).expect("there are candidates")
}

impl Fit {
    /// Of `rows` rows that read a share of the weights.
    fn time(&self, rows: f64, read: f64) -> f64 {
        let (compute, memory) = (rows * self.row, read * self.weights);
        compute.max(memory) + self.exposed * compute.min(memory)
    }
}

/// From the end of a kernel to the beginning of the next one on the same lanes, as the engine launches them: from the
/// lane's own thread.
fn launch_cost(lanes: &CpuLanes, team: LaneSet) -> Result<Nanos, ProfileError> {
    const LAUNCHES: u32 = 100;
    let mut times = Vec::new();
    for _ in 0..5 {
        let (send, receive) = channel();
        let start = Instant::now();
        chain(lanes.clone(), team, LAUNCHES, send)?;
        receive.recv().map_err(|_| ProfileError::Lanes("a lane stopped".to_owned()))?;
        times.push(start.elapsed().as_secs_f64() / f64::from(LAUNCHES));
    }
    Ok(Nanos::from(Duration::from_secs_f64(fastest(times))))
}

fn chain(lanes: CpuLanes, team: LaneSet, left: u32, done: std::sync::mpsc::Sender<()>) -> Result<(), ProfileError> {
    let next = lanes.clone();
    let job = Box::new(move |crew: &dyn Crew| {
        // The other members come for every kernel.
        crew.run(&|worker| worker.sync());
        if left == 0 {
            let _ = done.send(());
        } else {
            // A lane that stops breaks the chain, and the sender goes with it.
            let _ = chain(next, team, left - 1, done);
        }
    });
    lanes.launch(team, job).map_err(|error| ProfileError::Lanes(error.to_string()))
}

/// Runs kernels on two lanes, alone and side by side, and compares how many come to their end. Either lane may be the one that
/// decodes, so the slower way round counts.
fn contention(bench: &Bench, lanes: &CpuLanes, pair: [usize; 2], effort: Effort) -> Result<Contention, ProfileError> {
    let window = Duration::from_millis(if effort == Effort::Quick { 25 } else { 500 });
    let all: Vec<LaneId> = lanes.all().iter().collect();
    let [first, last] = pair.map(|lane| LaneSet::from_iter([all[lane]]));
    let run = |team: LaneSet, rows: usize| {
        let bench = bench.clone();
        start(lanes, team, move |site| repeat(&bench, site, rows, window))
    };
    let alone = |team, rows| -> Result<f64, ProfileError> { run(team, rows)?.recv().map_err(|_| stopped())? };
    let together = |a, b| -> Result<(f64, f64), ProfileError> {
        let (one, other) = (run(first, a)?, run(last, b)?);
        Ok((one.recv().map_err(|_| stopped())??, other.recv().map_err(|_| stopped())??))
    };
    let half = bench.model.config().context.as_usize() / 2;
    let (memory, compute) = (ROWS[0], CONTENDING_ROWS.min(half).max(1));
    let (memory_first, compute_first) = (alone(first, memory)?, alone(first, compute)?);
    let (memory_last, compute_last) = (alone(last, memory)?, alone(last, compute)?);
    let (m1, m2) = together(memory, memory)?;
    let (computing_first, reading_last) = together(compute, memory)?;
    let (reading_first, computing_last) = together(memory, compute)?;
    let (c1, c2) = together(compute, compute)?;
    let slowdown = |alone: f64, beside: f64| (alone / beside.max(1e-9)).clamp(1.0, Contention::MOST);
    Ok(Contention {
        memory_beside_memory: slowdown(memory_first + memory_last, m1 + m2),
        memory_beside_compute: slowdown(memory_last, reading_last).max(slowdown(memory_first, reading_first)),
        compute_beside_memory: slowdown(compute_first, computing_first).max(slowdown(compute_last, computing_last)),
        compute_beside_compute: slowdown(compute_first, c1).max(slowdown(compute_last, c2)),
    })
}

/// Rows of a compute-bound kernel that is over soon.
const CONTENDING_ROWS: usize = 64;

/// Layers a second, over and over for a while.
fn repeat(bench: &Bench, site: Site<'_>, rows: usize, window: Duration) -> Result<f64, ProfileError> {
    let mut pass = bench.pass(&[Shape { context: 0, rows }])?;
    let layers = bench.layers(site.lanes);
    let (start, mut count) = (Instant::now(), 0_u32);
    while start.elapsed() < window {
        let layer = layers.start + count as usize % layers.len().max(1);
        bench.time(&mut pass, Bench::token_wise(layer..layer + 1), site)?;
        count += 1;
    }
    Ok(f64::from(count) / start.elapsed().as_secs_f64())
}

fn stopped() -> ProfileError {
    ProfileError::Lanes("a kernel panicked".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_wait_for_a_share_of_what_they_want() {
        let time = |ran, waited| Some(CoreTime { ran: Nanos(ran), waited: Nanos(waited) });
        let before = [time(10, 10), time(0, 0), None];
        assert_eq!(waited_share(&[time(70, 30), time(120, 0), time(1, 9)], &before), 0.1);
        assert_eq!(waited_share(&[None], &[None]), 0.0, "nobody tells");
    }

    #[test]
    fn a_roofline_is_found_again() {
        let experts = |rows: f64| 0.2 + 0.8 * (1.0 - 0.75_f64.powf(rows));
        for (exposed, dense) in [(0.0, true), (0.3, true), (1.0, true), (0.0, false), (0.3, false)] {
            let read = |rows: f64| if dense { 1.0 } else { experts(rows) };
            let truth = Fit { weights: 3e-3, row: 2e-4, exposed };
            let times: Vec<f64> = ROWS.iter().map(|&rows| truth.time(rows as f64, read(rows as f64))).collect();
            let found = fit(&ROWS, &times, read);
            assert!((found.weights / truth.weights - 1.0).abs() < 0.02, "{found:?}");
            assert!((found.row / truth.row - 1.0).abs() < 0.02, "{found:?}");
            assert!((found.exposed - truth.exposed).abs() < 0.03, "{found:?}");
        }
    }
}
