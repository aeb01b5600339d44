//! Where the time of a layer goes: a chunk of a real text in the middle of the model, by the CPU alone and by each scheme,
//! on the same routes. (NPUMoE §5.7, Table 4)
//!
//! Packing is dividing rows among launches, gathering and padding; experts is launches; what the crew computes while the
//! first one runs, beyond what it is waited for, is its share. A launch begins with its rows gathered and ends with its
//! results scattered, and a device made of cores may compute before starting it returns: gathering and scattering alone are
//! timed on the same routes and taken off. The CPU's kernels gather, compute and scatter in one, which is all the crew's
//! share.

use super::line::{BreakdownLine, Line, Steps};
use super::watched::{Recalled, Watched};
use super::{MoeError, Settings, middle};
use crate::bed::{Bed, timed};
use crate::cores::on_cores;
use crate::load::Progress;
use crate::samples::median;
use duet_kernels::crew::Crew;
use duet_model::Model;
use duet_model::forward::{Activations, ExpertWise, FateCounts, Node, NotRun, Pass, Segment};
use duet_model::kv::KvFormat;
use duet_moe::Packing;
use duet_offload::{ExpertScheme, PlacedExperts};
use duet_types::{Nanos, TokenId, Tokens};

/// One run through the layer, and what became of rows.
#[derive(Clone, Copy)]
struct Sample {
    steps: Steps,
    places: FateCounts,
    launches: u64,
    slots: u64,
}

/// Runs through the layer.
struct Bench<'a> {
    model: &'a Model,
    layer: usize,
    crew: &'a dyn Crew,
    recalled: Recalled,
}

pub(super) fn measure(
    bed: &Bed,
    settings: &Settings,
    progress: Progress<'_>,
    tell: &mut dyn FnMut(Line),
) -> Result<(), MoeError> {
    let (rows, count) = (settings.chunk(), settings.samples.max(1) * TURNS);
    let mut alone = Vec::new();
    for &scheme in &settings.schemes {
        progress(&format!("one layer, {scheme}"));
        let placed = settings.placed(bed, scheme, rows)?;
        let (on_cpu, on_device) = turns(bed, rows, count, placed)?;
        alone.extend(on_cpu);
        tell(Line::Breakdown(line(bed, Some(scheme), rows, &on_device)?));
    }
    if !alone.is_empty() {
        tell(Line::Breakdown(line(bed, None, rows, &alone)?));
    }
    Ok(())
}

/// Lets the CPU alone and the device take turns: runs of each.
fn turns(bed: &Bed, rows: Tokens, count: usize, placed: PlacedExperts) -> Result<(Vec<Sample>, Vec<Sample>), MoeError> {
    let (model, text) = (std::sync::Arc::clone(&bed.model), bed.text(rows.as_usize()));
    on_cores(bed.threads, move |crew| {
        let bench = Bench { layer: middle(&model), model: &model, crew, recalled: Recalled::new() };
        let mut pass = bench.reach(text)?;
        // The first turn warms up.
        let turn = |_| Ok((bench.sample(&mut pass, None)?, bench.sample(&mut pass, Some(&placed))?));
        let turns = (0..=count).map(turn).collect::<Result<Vec<_>, MoeError>>()?;
        Ok(turns.into_iter().skip(1).unzip())
    })
}

impl Bench<'_> {
    /// A pass of a text up to the layer, by the kernels, with what its output projection comes to recalled.
    fn reach(&self, text: Vec<TokenId>) -> Result<Pass, MoeError> {
        let (model, rows) = (self.model, text.len());
        let kv = model.kv_pool(KvFormat::F16, Tokens(rows as u32)).table();
        let pass = Pass::new(model, Activations::new(model, rows), vec![Segment::new(kv, text)]);
        let mut pass = pass.map_err(|refused| refused.error)?;
        let before = model.order().nodes().take_while(|node| *node != Node::Ffn { layer: self.layer });
        before.for_each(|node| model.run_node(&mut pass, node, 0..rows, self.crew));
        model.route_on(&Watched::new(None, &self.recalled), &mut pass, self.layer, self.crew)?;
        Ok(pass)
    }

    /// The layer once, by the crew or on a device.
    fn sample(&self, pass: &mut Pass, device: Option<&PlacedExperts>) -> Result<Sample, MoeError> {
        let (model, layer, rows) = (self.model, self.layer, pass.rows());
        let before = device.map(ExpertWise::stats).unwrap_or_default();
        let (qkv, projected) = timed(|| self.qkv(pass, device));
        projected?;
        let (attention, ()) = timed(|| model.run_node(pass, Node::Attention { layer }, 0..rows, self.crew));
        // The crew projects and routes in one, so the same is done again without the projection.
        let by_crew =
            device.is_none().then(|| timed(|| model.run_node(pass, Node::Route { layer }, 0..rows, self.crew)).0);
        let watched = Watched::new(device.map(|device| device as &dyn ExpertWise), &self.recalled);
        let (route, routed) = timed(|| model.route_on(&watched, pass, layer, self.crew));
        routed?;
        let (launches, ran) = timed(|| {
            (0..watched.launches()).try_for_each(|launch| model.launch_on(&watched, pass, (layer, launch), self.crew))
        });
        ran?;
        let seen = watched.into_seen();
        let after = device.map(ExpertWise::stats).unwrap_or_default();
        let (launched, slots) = (after.launches - before.launches, after.slots - before.slots);
        let [gather, scatter] = self.moving(&seen.packings, slots as usize);
        let device_time = seen.begin + seen.finish;
        let routing = route.saturating_sub(seen.project + seen.dispatch + seen.aside);
        let steps = Steps {
            qkv,
            attention,
            output: by_crew.map_or(seen.project, |both| both.saturating_sub(routing)),
            routing,
            packing: seen.dispatch + gather,
            experts: device_time.saturating_sub(gather + scatter),
            crew: launches.saturating_sub(device_time),
            scatter,
        };
        Ok(Sample { steps, places: seen.places, launches: launched, slots })
    }

    fn qkv(&self, pass: &mut Pass, device: Option<&PlacedExperts>) -> Result<(), NotRun> {
        let (node, rows) = (Node::Qkv { layer: self.layer }, 0..pass.rows());
        let run = device.map(|device| self.model.run_node_on(device, pass, node, rows.clone(), self.crew));
        match run {
            Some(Err(NotRun::Failed(error))) => return Err(NotRun::Failed(error)),
            Some(Ok(())) => {}
            // Norms with biases are the CPU's.
            Some(Err(NotRun::Unsupported(_))) | None => self.model.run_node(pass, node, rows, self.crew),
        }
        Ok(())
    }

    /// How long gathering a layer's launches, padded to `slots` slots, and scattering them take.
    fn moving(&self, packings: &[Packing], slots: usize) -> [Nanos; 2] {
        let hidden = self.model.blueprint().hidden;
        let mut rows = self.recalled.get().cloned().unwrap_or_default();
        let mut lent: Vec<Vec<f32>> = packings.iter().map(|packing| vec![0.5; packing.slots() * hidden]).collect();
        let packed: usize = packings.iter().map(Packing::slots).sum();
        let mut padding = vec![0.5; slots.saturating_sub(packed) * hidden];
        let (gather, ()) = timed(|| {
            packings.iter().zip(&mut lent).for_each(|(packing, to)| packing.gather(&rows, hidden, to));
            std::hint::black_box(&mut padding).fill(0.0);
        });
        let scatter = || packings.iter().zip(&lent).for_each(|(packing, of)| packing.scatter(of, hidden, &mut rows));
        [gather, timed(scatter).0]
    }
}

fn line(bed: &Bed, scheme: Option<ExpertScheme>, rows: Tokens, samples: &[Sample]) -> Result<BreakdownLine, MoeError> {
    let name = scheme.map_or("cpu-only", ExpertScheme::name);
    let middle_of = |of: fn(&Steps) -> Nanos| {
        median(samples.iter().map(|sample| of(&sample.steps).as_millis_f64()).collect()).ok_or(MoeError::NoResult)
    };
    let on_device = |of: fn(&Steps) -> Nanos| scheme.map(|_| middle_of(of)).transpose();
    let last = samples.last().ok_or(MoeError::NoResult)?;
    let total_ms = middle_of(Steps::total)?;
    Ok(BreakdownLine {
        setting: format!("layer {}, {rows} rows, {name}", middle(&bed.model)),
        n: samples.len(),
        threads: bed.threads,
        scheme: name,
        qkv_ms: middle_of(|steps| steps.qkv)?,
        attention_ms: middle_of(|steps| steps.attention)?,
        output_ms: middle_of(|steps| steps.output)?,
        routing_ms: middle_of(|steps| steps.routing)?,
        packing_ms: on_device(|steps| steps.packing)?,
        experts_ms: on_device(|steps| steps.experts)?,
        crew_ms: middle_of(|steps| steps.crew)?,
        scatter_ms: on_device(|steps| steps.scatter)?,
        total_ms,
        ms_per_token: total_ms / f64::from(rows.0),
        shares: super::line::Shares::of(&last.places, last.launches, last.slots),
    })
}

/// Runs for each sample.
const TURNS: usize = 10;
