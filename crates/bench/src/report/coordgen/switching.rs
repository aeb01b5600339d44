//! What exchanging graphs costs, over the rate at which they are loaded. (CoordGen §1, §3.2; sd.npu §3.1, Figure 4)

use super::assumptions::Assumptions;
use super::graph_blocks::{BLOCKS, Cut, Division};
use super::paper_task::PaperTask;
use super::phones::{Phone, Target};
use super::schedules::Schedule;
use super::static_passes::{Graph, Heads, Passes};
use super::study::Study;
use crate::plot::{Axis, Mark, Point, Series, lines};
use crate::report::outcome::Estimate;
use crate::report::row::{Aim, Paper, Row, Unit};
use crate::report::section::{Entry, Plot, Section, Table};
use crate::traces::TaskTrace;
use duet_scheduler::progressive::{Blocks, Candidate, Choice, Pair, Prompt, Role, Trial, Use, choose};
use duet_sim::SocProfile;
use duet_sim::soc;
use duet_speculate::Method;
use duet_types::{Bytes, Nanos, Tokens};

/// Tokens of a prompt in the papers' figures, nearly.
const PROMPT: u32 = 1024;
/// Share of decode that the synchronous switch is, in per cent. (sd.npu §3.1, Figure 4)
const SYNCHRONOUS: f64 = 29.0;
/// How much longer it makes a request, in per cent. (CoordGen §1)
const DELAY: f64 = 94.9;
/// Loads that together take this share of the prompt should be hidden.
const HIDDEN: f64 = 0.9;
/// Share of decode that is then aimed for at most, in per cent.
const AIM: f64 = 1.0;
/// Rates of the curves, in GB/s: by factors of the fourth root of two.
const RATES: std::ops::RangeInclusive<i32> = -8..=16;

/// A machine with the model whose switch the papers tell of.
struct Machine {
    title: String,
    passes: Passes,
    /// The rate at which its profile loads graphs, in GB/s: as it is, lowest and highest.
    rate: Estimate,
}

/// What one request does after its prompt, on average.
#[derive(Clone, Copy)]
struct Answer {
    /// Passes token by token.
    tokens: f64,
    /// Passes that verify CoordGen's drafts.
    passes: f64,
}

/// How an answer is decoded.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Decoding {
    Tokens,
    Drafts,
}

pub(super) fn section(study: &Study) -> Section {
    let mut section = Section {
        id: "switching",
        title: "What exchanging graphs costs (§3.2; sd.npu §3.1)",
        prose: PROSE.map(str::to_owned).into(),
        ..Section::default()
    };
    let Some(trace) = answers(study) else { return section };
    let answer = Answer::of(trace);
    section.prose.push(format!("Answers are those to {}, on average.", trace.described()));
    for machine in machines() {
        section.rows.extend(rows(study, trace, &machine, answer));
        section.tables.push(table(&machine));
        section.plots.extend(plot(&machine, answer));
    }
    section.tables.extend(choice(trace));
    section
}

const PROSE: [&str; 6] = [
    "Qwen2.5-1.5B, a prompt of 1024 tokens, graphs of 256 and of 32 rows in six blocks of equal weights. The papers' blocks \
     have equal layers; the head then makes the last one twice as heavy, and its load is hard to hide where loads take nearly as \
     long as the prompt. The cost of switching is how much later decoding can begin than if both graphs were resident: what waiting for graphs takes, \
     and what reading a part of the prompt on graphs of 32 rows takes more. Its share is of that and decoding together. Loading \
     is predicted to take nothing from computing, though both use the same memory: flash gives about a tenth of what memory \
     does, at most.",
    "The synchronous switch loads all graphs after the prompt, the asynchronous one each when its block has computed the last \
     chunk. The paper's rule begins with the first chunk and always takes the last block that is not switched. The latest start \
     (ours) tries that rule from later places, with the block whose next turn is furthest, and takes the plan that is ready \
     first; with room for one graph more a block's old graph is used until the new one is there.",
    "The ring is where all loads together take 0.9 of the prompt: there they should vanish behind it, and 1 % is aimed for. \
     At such a rate the block that the paper's rule wants to switch is often the next one to compute; then it has to wait, and \
     the last loads come after the prompt.",
    "What is left there is launches: where a block is switched before the last chunk, it computes that in eight passes of its \
     graph of 32 rows, and each is a launch of its own. The optimum among all plans in place says how much of it no plan saves; \
     where answers are decoded quickly that alone is more than 1 % of decode.",
    "No paper says how long the answers of its figure of 29.0 % are, nor at what rate its graphs were loaded, nor which decoding \
     it is a share of; it stands beside decoding token by token at the rate of the profile. The delay of 94.9 % is that of the \
     paper's worst case and stands beside a request with CoordGen's passes.",
    "Where a prompt follows at once, the prefill graphs have to be loaded again, which no paper counts. The tables say what that \
     is, if nothing hides it.",
];

/// The task whose answers are decoded: sd.npu's figure is of rag.
fn answers(study: &Study) -> Option<&TaskTrace> {
    let place = [PaperTask::Rag, PaperTask::Summary].into_iter().find_map(|task| study.place(task));
    study.traces.get(place.unwrap_or_default())
}

fn machines() -> Vec<Machine> {
    let phones = Phone::ALL.map(Phone::soc);
    let intel = soc::built_in().find(|soc| soc.name == "intel-core-ultra-5-125h");
    phones.into_iter().chain(intel).map(|soc| Machine::of(&soc)).collect()
}

impl Machine {
    fn of(soc: &SocProfile) -> Self {
        let passes = Passes::new(soc, &Target::Qwen15.shape().heg(), &Assumptions::NOMINAL);
        let rate = &soc.graphs.load_gb_s;
        let (low, high) = rate.interval().unwrap_or((rate.value, rate.value));
        Self { title: soc.title.clone(), passes, rate: Estimate { value: rate.value, low, high } }
    }

    /// The blocks, if graphs are loaded at some GB/s.
    fn blocks(&self, rate: f64) -> Blocks {
        self.divided(rate, Division::Weights)
    }

    fn divided(&self, rate: f64, division: Division) -> Blocks {
        // Calibration wants the logits of all rows of a prompt, and verifying those of all rows of a draft.
        let heads = Pair { prefill: Heads::All, decode: Heads::All };
        Cut { division, ..Cut::paper(heads) }.profile(&self.passes.clone().loading(rate * 1e9))
    }

    /// How much later decoding can begin, in seconds.
    fn cost(&self, schedule: Schedule, rate: f64) -> f64 {
        let blocks = self.blocks(rate);
        (schedule.ready(&blocks, PROMPT) - Schedule::Both.ready(&blocks, PROMPT)).max(0.0)
    }

    /// The same as a share of it and decoding, in per cent.
    fn share(&self, schedule: Schedule, rate: f64, decode_s: f64) -> f64 {
        let cost = self.cost(schedule, rate);
        cost / (cost + decode_s) * 100.0
    }

    /// Seconds of decoding an answer.
    fn decode(&self, answer: Answer, decoding: Decoding) -> f64 {
        let middle = PROMPT + (answer.tokens / 2.0) as u32;
        let (passes, heads) = match decoding {
            Decoding::Tokens => (answer.tokens, Heads::Last),
            Decoding::Drafts => (answer.passes, Heads::All),
        };
        passes * self.passes.in_blocks(BLOCKS, Graph::DECODE, middle, heads)
    }

    /// A figure at the profile's rate, and at the ends of its interval.
    fn over_rates(&self, figure: impl Fn(f64) -> f64) -> Estimate {
        let [value, slow, fast] = [self.rate.value, self.rate.low, self.rate.high].map(figure);
        Estimate { value, low: value.min(slow).min(fast), high: value.max(slow).max(fast) }
    }

    /// Where all loads take [`HIDDEN`] of the prompt, in GB/s.
    fn mark(&self) -> f64 {
        let blocks = self.blocks(1.0);
        blocks.load(Role::Decode).as_secs_f64() / (HIDDEN * Schedule::Both.ready(&blocks, PROMPT))
    }
}

impl Answer {
    fn of(trace: &TaskTrace) -> Self {
        let n = trace.requests.len() as f64;
        let steps = |method| trace.requests.iter().map(|request| request.by(method).steps.len()).sum::<usize>() as f64;
        Self { tokens: steps(Method::None) / n, passes: steps(Method::CoordGen) / n }
    }
}

/// Rows of one machine and one answer.
struct Rows<'a> {
    machine: &'a Machine,
    setting: String,
    n: usize,
    /// Seconds of decoding token by token, and with CoordGen's drafts.
    tokens: f64,
    drafts: f64,
}

fn rows(study: &Study, trace: &TaskTrace, machine: &Machine, answer: Answer) -> Vec<Row> {
    let setting = study.setting(&format!("{}, {}, {}", machine.title, Target::Qwen15.name(), trace.title()));
    let [tokens, drafts] = [Decoding::Tokens, Decoding::Drafts].map(|decoding| machine.decode(answer, decoding));
    let rows = Rows { machine, setting, n: trace.requests.len(), tokens, drafts };
    let mut all: Vec<Row> = rows.told().into();
    all.extend(Schedule::EXCHANGING.map(|schedule| rows.at_rate(schedule)));
    let at_mark = Schedule::EXCHANGING.into_iter().chain([Schedule::Optimal]);
    all.extend(at_mark.map(|schedule| rows.at_mark(schedule)));
    all
}

impl Rows<'_> {
    /// What the papers have figures of.
    fn told(&self) -> [Row; 2] {
        let machine = self.machine;
        let prefill = Schedule::Both.ready(&machine.blocks(machine.rate.value), PROMPT);
        let share = |rate| machine.share(Schedule::Synchronous, rate, self.tokens);
        let delay = |rate| machine.cost(Schedule::Synchronous, rate) / (prefill + self.drafts) * 100.0;
        [
            self.row("sd.npu §3.1", "switching's share, synchronous, decoding token by token".to_owned())
                .computed(Some(machine.over_rates(share)), self.n)
                .paper(Paper::Is(SYNCHRONOUS)),
            self.row("§1", "how much longer a request takes, synchronous".to_owned())
                .computed(Some(machine.over_rates(delay)), self.n)
                .paper(Paper::AtMost(DELAY)),
        ]
    }

    fn at_rate(&self, schedule: Schedule) -> Row {
        let share = |rate| self.machine.share(schedule, rate, self.drafts);
        self.row("§3.2", format!("switching's share, {}", schedule.name()))
            .computed(Some(self.machine.over_rates(share)), self.n)
    }

    fn at_mark(&self, schedule: Schedule) -> Row {
        let share = self.machine.share(schedule, self.machine.mark(), self.drafts);
        let row = self
            .row("§3.2", format!("switching's share where loads take 0.9 of the prompt, {}", schedule.name()))
            .computed(Some(Estimate::exact(share)), self.n);
        match schedule {
            Schedule::Greedy | Schedule::JustInTime | Schedule::Beside | Schedule::Optimal => row.aim(Aim::AtMost(AIM)),
            Schedule::Both | Schedule::Synchronous | Schedule::Asynchronous => row,
        }
    }

    fn row(&self, figure: &'static str, quantity: String) -> Row {
        Row::new(figure, self.setting.clone(), quantity, Unit::Percent)
    }
}

/// What each way takes at the profile's rate.
fn table(machine: &Machine) -> Table {
    let blocks = machine.blocks(machine.rate.value);
    let caption = format!(
        "{}, graphs loaded at {} GB/s: a prompt of {PROMPT}, in seconds; loading all prefill graphs again takes {:.2} s",
        machine.title,
        machine.rate.value,
        blocks.load(Role::Prefill).as_secs_f64(),
    );
    let layers = machine.divided(machine.rate.value, Division::Layers);
    let head =
        ["", "prompt read", "ready to decode", "in blocks of equal layers", "waited for graphs", "most of graphs, GB"];
    let mut table = Table::new(caption, &head);
    for schedule in [Schedule::Both].into_iter().chain(Schedule::EXCHANGING) {
        let timeline = schedule.timeline(&blocks, PROMPT);
        let seconds = |nanos: u64| Entry::number(Some(Nanos(nanos).as_secs_f64()), 3);
        table.push(vec![
            Entry::text(schedule.name()),
            seconds(timeline.prefilled.0),
            seconds(timeline.ready().0),
            seconds(schedule.timeline(&layers, PROMPT).ready().0),
            seconds(timeline.stalled.0),
            Entry::number(Some(timeline.peak.0 as f64 / 1e9), 2),
        ]);
    }
    table
}

fn plot(machine: &Machine, answer: Answer) -> Option<Plot> {
    let (decode, mark) = (machine.decode(answer, Decoding::Drafts), machine.mark());
    let mut rates: Vec<(f64, Mark)> = RATES.map(|step| (2_f64.powf(f64::from(step) / 4.0), Mark::None)).collect();
    rates.push((mark, Mark::Ring));
    rates.sort_by(|a, b| a.0.total_cmp(&b.0));
    let series = Schedule::EXCHANGING.map(|schedule| Series {
        name: schedule.name().to_owned(),
        points: rates.iter().map(|&(x, mark)| Point { x, y: machine.share(schedule, x, decode), mark }).collect(),
    });
    let (x, y) = (Axis::Log { label: "GB/s at which graphs are loaded" }, Axis::Linear { label: "% of decode" });
    Plot::of(format!("{}: switching's share of decode, CoordGen's passes", machine.title), lines(&x, &y, &series))
}

/// How many blocks, and which rows, on the first phone.
fn choice(trace: &TaskTrace) -> Option<Table> {
    let machine = Machine::of(&Phone::K60Pro.soc());
    let trials: Vec<Trial> =
        CANDIDATES.iter().flat_map(|&graphs| COUNTS.map(|count| trial(&machine, trace, graphs, count))).collect();
    let room = trials.first().map_or(Bytes::ZERO, |trial| trial.blocks.bytes(Role::Prefill));
    // Without room for a graph more: what is left of dividing bytes among blocks is below a byte for each.
    let Choice { points, best } = choose(&trials, room + Bytes(Blocks::COUNT_MAX as u64)).ok()??;
    let mut table = Table::new(
        format!("{}: how many blocks and which rows are best for these requests, latest start", machine.title),
        &["blocks", "rows that read", "rows that decode", "s to the end, all requests", "s waited", "graphs, GB"],
    );
    for point in points {
        let Candidate { blocks, rows } = point.candidate;
        let total = format!("{:.2}", point.total.as_secs_f64());
        table.push(vec![
            Entry::text(blocks),
            Entry::text(rows.prefill),
            Entry::text(rows.decode),
            if point == best { Entry::Chosen(total) } else { Entry::Plain(total) },
            Entry::number(Some(point.stalled.as_secs_f64()), 2),
            Entry::number(Some(point.peak.0 as f64 / 1e9), 2),
        ]);
    }
    Some(table)
}

/// Blocks that are tried: equal parts of 28 layers, and the paper's example.
const COUNTS: [usize; 6] = [1, 2, 4, 6, 7, 14];
/// Graphs that are tried. Drafts are at most 32 rows long, so 64 verify no more.
const CANDIDATES: [Pair<Graph>; 4] = [
    Pair { prefill: Graph(128), decode: Graph(32) },
    Pair { prefill: Graph(256), decode: Graph(32) },
    Pair { prefill: Graph(256), decode: Graph(64) },
    Pair { prefill: Graph(512), decode: Graph(32) },
];

fn trial(machine: &Machine, trace: &TaskTrace, graphs: Pair<Graph>, blocks: usize) -> Trial {
    let heads = Pair { prefill: Heads::All, decode: Heads::All };
    let uses = trace.requests.iter().map(|request| Use {
        prompt: Prompt { context: Tokens::ZERO, rows: Tokens(request.prompt.0.clamp(1, Blocks::POSITIONS_MAX.0)) },
        passes: request.by(Method::CoordGen).steps.len() as u32,
    });
    Trial {
        blocks: Cut { blocks, graphs, heads, division: Division::Weights }.profile(&machine.passes),
        uses: uses.collect(),
    }
}
