//! Experts in a feed-forward kernel: against a plain computation, to the bit across instruction sets, rows and crews.

#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
#[expect(dead_code, reason = "what others count")]
mod tiles;

use duet_kernels::crew::{Crew, Scoped, Solo, Unequal};
use duet_kernels::fused::{
    Beside, Block, BufferShape, Buffers, ExpertBias, ExpertShape, Experts, Feed, Feeds, FfnWeights, Norm, Places,
    PresentFeeds, Routing, RowNorm, SharedExpert, add_waves, feed_experts, feed_forward, feed_wave, project_attended,
    route,
};
use duet_kernels::isa::Isa;
use duet_kernels::matmul::Gating;
use duet_kernels::packed::{Form, PANEL, Packable, PackedMatrix, WeightGroup};
use duet_kernels::quantize::Operands;
use proptest::prelude::*;
use std::sync::Arc;

const HIDDEN: usize = 64;

/// Of which weights sum to one.
const SIGMOID: Routing = Routing::Sigmoid { divided: Some(0.0), scale: 1.0 };

fn noise(seed: usize) -> f32 {
    let mut x = (seed as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    x ^= x >> 29;
    x = x.wrapping_mul(0xbf58_476d_1ce4_e5b9);
    (x >> 40) as f32 / (1_u64 << 23) as f32 - 1.0
}

fn floats(seed: usize, count: usize, scale: f32) -> Vec<f32> {
    (0..count).map(|i| noise(seed * 1_000_003 + i) * scale).collect()
}

/// Of bytes or of floats, so that experts of both take part.
fn matrix(seed: usize, outputs: usize, inputs: usize) -> PackedMatrix {
    let form = if (seed / 100 + seed).is_multiple_of(2) { Form::Q8_0 } else { Form::F16 };
    let group = |output: usize, index: usize| -> Packable {
        let floats = floats(seed + output * 31 + index * 7, 32, 0.2);
        if form.is_float() { std::array::from_fn(|i| floats[i]).into() } else { WeightGroup::quantize(&floats).into() }
    };
    PackedMatrix::new(outputs, inputs, form, group).unwrap()
}

/// A layer of experts.
struct Layer {
    router: Vec<f32>,
    /// Of the shared one; there is none where experts have biases.
    gate: Option<Vec<f32>>,
    experts: Vec<Feed>,
    /// Of the router, and of what chooses.
    router_biases: Option<[Vec<f32>; 2]>,
    biases: Option<Vec<ExpertBias>>,
    shared: Option<Feed>,
    /// If that is a block beside the others: the weights of its norms, in the order of the kernel's, and factors.
    beside: Option<([Vec<f32>; 4], Vec<f32>)>,
    output: PackedMatrix,
    norm: Vec<f32>,
    bias: Vec<f32>,
    routing: Routing,
    chosen: usize,
    width: usize,
}

impl Layer {
    fn new(experts: usize, chosen: usize, width: usize, shared: Option<usize>, routing: Routing) -> Self {
        let feed = |seed: usize, width: usize| Feed {
            gate_up: matrix(seed, 2 * width.next_multiple_of(PANEL), HIDDEN),
            down: matrix(seed + 17, HIDDEN, width),
        };
        Self {
            router: floats(5, experts * HIDDEN, 0.5),
            gate: Some(floats(6, HIDDEN, 0.5)),
            experts: (0..experts).map(|expert| feed(100 * expert + 1000, width)).collect(),
            router_biases: None,
            biases: None,
            shared: shared.map(|width| feed(77, width)),
            beside: None,
            output: matrix(3, HIDDEN, HIDDEN),
            norm: floats(8, HIDDEN, 1.0),
            bias: floats(9, HIDDEN, 0.3),
            routing,
            chosen,
            width,
        }
    }

    /// The same with biases of all kinds.
    fn with_biases(self) -> Self {
        let count = self.experts.len();
        let bias = |expert: usize| ExpertBias {
            gate_up: floats(expert + 300, 2 * self.width.next_multiple_of(PANEL), 0.5),
            down: floats(expert + 400, HIDDEN, 0.5),
        };
        let biases = Some((0..count).map(bias).collect());
        Self { router_biases: Some([floats(21, count, 0.5), floats(22, count, 0.3)]), biases, gate: None, ..self }
    }

    /// The same with the shared one as a block beside the others, if there is one.
    fn beside(self) -> Self {
        let count = self.experts.len();
        let factors = || floats(34, count, 0.5).iter().map(|factor| factor + 1.0).collect();
        let beside = self.shared.as_ref().map(|_| ([30, 31, 32, 33].map(|seed| floats(seed, HIDDEN, 1.0)), factors()));
        Self { gate: self.gate.filter(|_| beside.is_none()), beside, ..self }
    }

    /// Buffers before the kernel; row `i` begins as row `rows[i]`.
    fn buffers(&self, rows: &[usize]) -> Buffers {
        let shape = BufferShape {
            hidden: HIDDEN,
            qkv: 3 * HIDDEN,
            queries: HIDDEN,
            ffn: 0,
            experts: Some(ExpertShape {
                experts: self.experts.len(),
                chosen: self.chosen,
                ffn: self.width,
                shared: self.shared.as_ref().map_or(0, |feed| feed.down.inputs()),
                beside: self.beside.is_some(),
            }),
            angles: 8,
            layer_inputs: 0,
            operands: Operands::BytesAndFloats,
        };
        let mut buffers = Buffers::new(shape, rows.len());
        for (index, &row) in rows.iter().enumerate() {
            buffers.residual_mut(index).copy_from_slice(&floats(row + 50, HIDDEN, 1.0));
        }
        buffers
    }

    fn weights(&self) -> FfnWeights<'_> {
        FfnWeights {
            output: &self.output,
            output_bias: Some(&self.bias),
            output_norm: None,
            norm: RowNorm::Layer(Norm { weight: &self.norm, epsilon: 1e-5 }, &self.bias),
            gating: Gating::Silu,
            block: Block::Experts(Experts {
                router: &self.router,
                router_bias: self.router_biases.as_ref().map(|[router, _]| router.as_slice()),
                routing: self.routing,
                choice_bias: self.router_biases.as_ref().map(|[_, choice]| choice.as_slice()),
                chosen: self.chosen,
                experts: Feeds::All(&self.experts),
                biases: self.biases.as_deref(),
                shared: self.shared.as_ref().map(|feed| SharedExpert { gate: self.gate.as_deref(), feed }),
                beside: self.beside.as_ref().map(|(norms, factors)| {
                    let [before, of_block, of_experts, of_both] =
                        norms.each_ref().map(|weight| Norm { weight, epsilon: 1e-5 });
                    Beside { before, of_block, of_experts, of_both, factors }
                }),
            }),
        }
    }

    /// The residual stream after the kernel.
    fn run(&self, isa: Isa, crew: &dyn Crew, rows: &[usize]) -> Vec<Vec<f32>> {
        let mut buffers = self.buffers(rows);
        feed_forward(isa, crew, &self.weights(), &mut buffers, 0..rows.len());
        (0..rows.len()).map(|row| buffers.residual(row).to_vec()).collect()
    }

    /// The same in parts: the output projection, routing, and the places of each mark after the other.
    fn run_in_parts(&self, rows: usize, marks: &[Vec<bool>]) -> Vec<Vec<f32>> {
        let (isa, crew, weights, all) = (Isa::chosen().unwrap(), &Scoped { threads: 2 }, self.weights(), 0..rows);
        let mut buffers = self.buffers(&all.clone().collect::<Vec<_>>());
        project_attended(isa, crew, &weights, &mut buffers, all.clone());
        route(isa, crew, &weights, &mut buffers, all.clone());
        for marks in marks {
            feed_experts(isa, crew, &weights, &mut buffers, all.clone(), Places::Marked(marks));
        }
        all.map(|row| buffers.residual(row).to_vec()).collect()
    }

    /// The same wave by wave, with no other experts in memory than those of the wave: `wave_of` says which each is in.
    fn run_in_waves(mut self, rows: usize, waves: usize, wave_of: impl Fn(usize) -> usize) -> Vec<Vec<f32>> {
        let (isa, crew, all) = (Isa::chosen().unwrap(), &Scoped { threads: 2 }, 0..rows);
        let mut buffers = self.buffers(&all.clone().collect::<Vec<_>>());
        let feeds: Vec<Arc<Feed>> = std::mem::take(&mut self.experts).into_iter().map(Arc::new).collect();
        let mut present = PresentFeeds::none(feeds.len(), self.width);
        let mut call = |present: &PresentFeeds, wave: Option<Vec<bool>>, step: Step| {
            let mut weights = self.weights();
            if let Block::Experts(experts) = &mut weights.block {
                experts.experts = Feeds::Present(present);
            }
            let buffers = &mut buffers;
            match step {
                Step::Route => {
                    project_attended(isa, crew, &weights, buffers, all.clone());
                    route(isa, crew, &weights, buffers, all.clone());
                }
                Step::Wave => {
                    let wave = wave.unwrap_or_default();
                    feed_wave(isa, crew, &weights, buffers, all.clone(), (Places::All, &wave));
                }
                Step::Add => add_waves(isa, crew, &weights, buffers, all.clone(), Places::All),
            }
        };
        call(&present, None, Step::Route);
        for wave in 0..waves {
            present.clear();
            // The shared one comes with the first wave.
            let of_wave: Vec<bool> = (0..=feeds.len())
                .map(|expert| if expert == feeds.len() { wave == 0 } else { wave_of(expert) == wave })
                .collect();
            let there = feeds.iter().enumerate().filter(|(expert, _)| of_wave[*expert]);
            there.for_each(|(expert, feed)| present.set(expert, Arc::clone(feed)));
            call(&present, Some(of_wave), Step::Wave);
        }
        call(&PresentFeeds::none(feeds.len(), self.width), None, Step::Add);
        all.map(|row| buffers.residual(row).to_vec()).collect()
    }

    /// The same in doubles, with nothing rounded. What attention found is zero, so the output projection is its bias.
    fn plain(&self, row: usize) -> Vec<f64> {
        let x: Vec<f64> = floats(row + 50, HIDDEN, 1.0).iter().zip(&self.bias).map(|(x, b)| f64::from(x + b)).collect();
        let mean = x.iter().sum::<f64>() / HIDDEN as f64;
        let variance = x.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / HIDDEN as f64;
        let norm =
            |i: usize| (x[i] - mean) / (variance + 1e-5).sqrt() * f64::from(self.norm[i]) + f64::from(self.bias[i]);
        let normed: Vec<f64> = (0..HIDDEN).map(norm).collect();
        let seen = if self.beside.is_some() { by_root(&x, &[1.0; HIDDEN]) } else { normed.clone() };
        let dot = |w: &[f32]| w.iter().zip(&seen).map(|(w, x)| f64::from(*w) * x).sum::<f64>();
        let mut scores: Vec<f64> = self.router.chunks(HIDDEN).map(dot).collect();
        let biases = self.router_biases.as_ref();
        if let Some([router, _]) = biases {
            scores.iter_mut().zip(router).for_each(|(score, bias)| *score += f64::from(*bias));
        }
        let sigmoid = |x: f64| 1.0 / (1.0 + (-x).exp());
        let is_sigmoid = matches!(self.routing, Routing::Sigmoid { .. });
        let by = |expert: usize| match biases.filter(|_| is_sigmoid) {
            Some([_, choice]) => sigmoid(scores[expert]) + f64::from(choice[expert]),
            None => scores[expert],
        };
        let mut order: Vec<usize> = (0..scores.len()).collect();
        order.sort_by(|&a, &b| by(b).total_cmp(&by(a)));
        order.truncate(self.chosen);
        let over: Vec<usize> =
            if self.routing == Routing::Softmax { (0..scores.len()).collect() } else { order.clone() };
        let share = |expert: usize| if is_sigmoid { sigmoid(scores[expert]) } else { scores[expert].exp() };
        let sum: f64 = over.iter().map(|&expert| share(expert)).sum();
        let bias = |expert: usize| self.biases.as_ref().map(|biases| &biases[expert]);
        if let (Some((norms, factors)), Some(block)) = (&self.beside, &self.shared) {
            let mut of_experts = vec![0.0; HIDDEN];
            for &expert in &order {
                let made = plain_feed(&self.experts[expert], bias(expert), &normed);
                let weight = share(expert) / sum * f64::from(factors[expert]);
                of_experts.iter_mut().zip(made).for_each(|(sum, made)| *sum += weight * made);
            }
            let of_block = by_root(&plain_feed(block, None, &by_root(&x, &norms[0])), &norms[1]);
            let of_experts = by_root(&of_experts, &norms[2]);
            let both: Vec<f64> = of_block.iter().zip(&of_experts).map(|(a, b)| a + b).collect();
            return x.iter().zip(by_root(&both, &norms[3])).map(|(x, y)| x + y).collect();
        }
        let mut out = x.clone();
        let mut add = |feed: &Feed, bias: Option<&ExpertBias>, weight: f64| {
            for (out, made) in out.iter_mut().zip(plain_feed(feed, bias, &normed)) {
                *out += weight * made;
            }
        };
        order.iter().for_each(|&expert| add(&self.experts[expert], bias(expert), share(expert) / sum));
        if let Some(feed) = &self.shared {
            add(feed, None, self.gate.as_ref().map_or(1.0, |gate| sigmoid(dot(gate))));
        }
        out
    }
}

enum Step {
    Route,
    Wave,
    Add,
}

/// A row divided by its root mean square, weighted.
fn by_root(x: &[f64], weight: &[f32]) -> Vec<f64> {
    let root = (x.iter().map(|x| x * x).sum::<f64>() / x.len() as f64 + 1e-5).sqrt();
    x.iter().zip(weight).map(|(x, weight)| x / root * f64::from(*weight)).collect()
}

fn plain_feed(feed: &Feed, bias: Option<&ExpertBias>, x: &[f64]) -> Vec<f64> {
    let product = |matrix: &PackedMatrix, output: usize, x: &[f64]| -> f64 {
        x.iter().enumerate().map(|(input, x)| f64::from(matrix.weight(output, input)) * x).sum()
    };
    let gated: Vec<f64> = (0..feed.down.inputs())
        .map(|neuron| {
            let panel = neuron / PANEL * 2 * PANEL + neuron % PANEL;
            let added = |at: usize| bias.map_or(0.0, |bias| f64::from(bias.gate_up[at]));
            let gate = product(&feed.gate_up, panel, x) + added(panel);
            gate / (1.0 + (-gate).exp()) * (product(&feed.gate_up, panel + PANEL, x) + added(panel + PANEL))
        })
        .collect();
    let added = |output: usize| bias.map_or(0.0, |bias| f64::from(bias.down[output]));
    (0..feed.down.outputs()).map(|output| product(&feed.down, output, &gated) + added(output)).collect()
}

#[test]
fn results_are_those_of_the_experts_a_row_goes_to() {
    for (routing, shared, has_biases, is_beside) in [
        (Routing::Softmax, Some(48), false, false),
        (Routing::SoftmaxOfChosen, None, false, false),
        (Routing::SoftmaxOfChosen, Some(96), false, false),
        (Routing::SoftmaxOfChosen, None, true, false),
        (SIGMOID, Some(48), true, false),
        (Routing::SoftmaxOfChosen, Some(96), false, true),
        (SIGMOID, Some(48), true, true),
    ] {
        let layer = Layer::new(6, 2, 40, shared, routing);
        let layer = if has_biases { layer.with_biases() } else { layer };
        let layer = if is_beside { layer.beside() } else { layer };
        let rows: Vec<usize> = (0..30).collect();
        let (mut error, mut total) = (0.0, 0.0);
        for (row, result) in layer.run(Isa::chosen().unwrap(), &Scoped { threads: 2 }, &rows).iter().enumerate() {
            let before = floats(row + 50, HIDDEN, 1.0);
            for ((a, b), x) in result.iter().zip(layer.plain(row)).zip(before) {
                error += (f64::from(*a) - b).powi(2);
                total += (b - f64::from(x)).powi(2);
            }
        }
        let (error, beside) = ((error / total).sqrt(), if is_beside { ", a block beside" } else { "" });
        assert!(error < 0.03, "{routing:?} {shared:?}{beside}: {error}");
    }
}

#[test]
fn parts_of_the_kernel_are_the_kernel() {
    let layer = Layer::new(6, 2, 40, Some(32), Routing::SoftmaxOfChosen);
    let whole = layer.run(Isa::chosen().unwrap(), &Solo, &(0..30).collect::<Vec<_>>());
    let (all, some): (Vec<_>, Vec<_>) = (0..90).map(|place| (true, noise(place) > 0.0)).unzip();
    assert_eq!(layer.run_in_parts(30, std::slice::from_ref(&all)), whole);
    let beside = Layer::new(6, 2, 40, Some(32), Routing::SoftmaxOfChosen).beside();
    let whole_beside = beside.run(Isa::chosen().unwrap(), &Solo, &(0..30).collect::<Vec<_>>());
    assert_eq!(beside.run_in_parts(30, &[all]), whole_beside);
    // Two halves are added in another order.
    let others = some.iter().map(|mark| !mark).collect();
    let near = |a: &f32, b: &f32| (a - b).abs() < 1e-5;
    let halves = layer.run_in_parts(30, &[some.clone(), others]);
    assert!(halves.iter().flatten().zip(whole.iter().flatten()).all(|(a, b)| near(a, b)));
    let half = layer.run_in_parts(30, &[some]);
    assert!(!half.iter().flatten().zip(whole.iter().flatten()).all(|(a, b)| near(a, b)), "the rest is somebody else's");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn a_row_is_the_same_in_any_company_and_on_any_machine(
        experts in 1_usize..20,
        chosen in any::<prop::sample::Index>(),
        width in prop::sample::select(vec![16_usize, 32, 40, 96]),
        shared in prop::sample::select(vec![None, Some(32), Some(80)]),
        rows in prop::collection::vec(0_usize..100, 1..40),
        threads in 1_usize..5,
        routing in prop::sample::select(
            vec![Routing::Softmax, Routing::SoftmaxOfChosen, Routing::SparseMixer { jitter: 0.01 }, SIGMOID]
        ),
        has_biases: bool,
        is_beside: bool,
    ) {
        let layer = Layer::new(experts, chosen.index(experts) + 1, width, shared, routing);
        let layer = if has_biases { layer.with_biases() } else { layer };
        let layer = if is_beside { layer.beside() } else { layer };
        let together = layer.run(Isa::chosen().unwrap(), &Scoped { threads }, &rows);
        for (&row, result) in rows.iter().zip(&together) {
            prop_assert!(&layer.run(Isa::Portable, &Solo, &[row])[0] == result);
        }
        for isa in Isa::available() {
            prop_assert!(layer.run(isa, &Solo, &rows) == together, "{}", isa);
        }
        let unequal = layer.run(Isa::chosen().unwrap(), &Unequal { cuts: &[0, 1, 4, 6] }, &rows);
        prop_assert!(unequal == together);
    }
}

#[test]
fn a_guess_at_the_row_itself_is_where_it_goes() {
    for (routing, shared) in [(Routing::Softmax, None), (SIGMOID, None), (Routing::SoftmaxOfChosen, Some(32))] {
        let layer = Layer::new(8, 3, 64, shared, routing).with_biases().beside();
        let (isa, crew, weights) = (Isa::chosen().unwrap(), &Solo, layer.weights());
        let mut buffers = layer.buffers(&[0, 1, 2]);
        project_attended(isa, crew, &weights, &mut buffers, 0..3);
        route(isa, crew, &weights, &mut buffers, 0..3);
        let Block::Experts(experts) = &weights.block else { panic!() };
        for row in 0..3 {
            let guess = experts.guess(isa, weights.norm, buffers.residual(row));
            assert_eq!(guess, buffers.routes(row).unwrap().0, "{routing:?}");
        }
    }
}

#[test]
fn waves_of_experts_are_the_kernel_to_the_bit() {
    let shared = |width: Option<usize>| Layer::new(8, 3, 64, width, Routing::Softmax);
    let layers: [&dyn Fn() -> Layer; 3] = [&|| shared(None), &|| shared(Some(96)), &|| shared(Some(96)).beside()];
    for layer in layers {
        for rows in [1, 2, 9] {
            let all: Vec<usize> = (0..rows).collect();
            let whole = layer().run(Isa::chosen().unwrap(), &Scoped { threads: 2 }, &all);
            for waves in [1, 2, 8] {
                let in_waves = layer().run_in_waves(rows, waves, |expert| (expert * 5 + 1) % waves);
                assert_eq!(in_waves, whole, "{rows} rows in {waves} waves");
            }
        }
    }
    let layer = || Layer::new(6, 2, 48, None, SIGMOID).with_biases();
    let whole = layer().run(Isa::chosen().unwrap(), &Solo, &[0, 1, 2]);
    assert_eq!(layer().run_in_waves(3, 3, |expert| expert % 3), whole, "with biases");
}
