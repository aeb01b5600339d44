//! Something panics under the engine's lock: every stream ends, pages come back, and what comes then is answered.

use super::exact::{Preparing, beside_a_device, holding, until};
use super::exchanging::{Loading, exchanging, prompt};
use super::*;
use crate::fake_model::{FakeDevice, HOLD};
use duet_scheduler::{Command, Event};
use duet_types::{Instant, KernelId};
use std::sync::atomic::AtomicBool;

/// Panics once: at the first event or command of a kind after it was armed.
struct Panics {
    event: fn(&Event) -> bool,
    command: fn(&Command) -> bool,
    armed: Arc<AtomicBool>,
}

impl Panics {
    fn if_armed(&self, hit: bool) {
        assert!(!(hit && self.armed.swap(false, Ordering::SeqCst)), "a test's observer");
    }
}

impl Observer for Panics {
    fn event(&mut self, _: Instant, event: &Event) {
        self.if_armed((self.event)(event));
    }

    fn command(&mut self, _: Instant, command: &Command) {
        self.if_armed((self.command)(command));
    }
}

/// An engine that spells "ab", and panics when it is told to.
struct Fragile {
    bench: Bench,
    armed: Arc<AtomicBool>,
}

impl Fragile {
    fn at(event: fn(&Event) -> bool, setup: &Setup) -> Self {
        Self::new(event, |_| false, setup, FakeDevice::Absent)
    }

    fn at_command(command: fn(&Command) -> bool) -> Self {
        Self::new(|_| false, command, &setup(), FakeDevice::Absent)
    }

    fn new(event: fn(&Event) -> bool, command: fn(&Command) -> bool, setup: &Setup, device: FakeDevice) -> Self {
        let armed = Arc::new(AtomicBool::new(false));
        let panics = Panics { event, command, armed: Arc::clone(&armed) };
        let model = FakeModel { script: letters("ab"), device, ..FakeModel::new(1000, 4) };
        Self { bench: Bench::observed(model, setup, vec![Box::new(panics)]), armed }
    }

    fn arm(&self) {
        self.armed.store(true, Ordering::SeqCst);
    }

    fn until_it_panicked(&self) {
        until("it panics", || !self.armed.load(Ordering::SeqCst));
    }

    /// Each of these generations has one end, and the engine goes on with nothing of them.
    fn goes_on(self, open: Vec<Generation>) {
        self.until_it_panicked();
        for generation in open {
            assert_failed(generation);
        }
        let Self { bench, .. } = self;
        assert!(bench.runtime.is_running());
        for _ in 0..2 {
            assert_eq!(bench.answer(spell()).text(), "ab");
        }
        let stats = bench.stats();
        assert_eq!((stats.running, stats.queued, stats.flows_kept, stats.kv_pages_used), (0, 0, 1, 1));
        let metrics = bench.runtime.metrics_text();
        let failures = "duet_scheduler_failures_total 1";
        assert!(metrics.lines().any(|line| line == failures), "{failures} is not in\n{metrics}");
    }
}

/// It ended once, and because of the panic.
fn assert_failed(generation: Generation) {
    let answer = answer(generation);
    assert!(matches!(answer.end, Err(EngineError::Internal(_))), "{:?}", answer.end);
}

#[test]
fn a_submission() {
    let fragile = Fragile::at(|event| matches!(event, Event::Submitted(_)), &setup());
    let running = fragile.bench.start(request(&[HOLD, SPELL]));
    let queued = fragile.bench.start(spell());
    fragile.bench.hold.wait_until_reached(1);
    fragile.arm();
    let refused = fragile.bench.submit(spell()).err();
    assert_eq!(refused, Some(EngineError::Internal("the scheduler failed: a test's observer".to_owned())));
    // At once, while the kernel of the other one still runs.
    assert_failed(queued);
    fragile.bench.hold.let_go();
    fragile.goes_on(vec![running]);
}

#[test]
fn the_end_of_a_kernel() {
    let fragile = Fragile::at(|event| matches!(event, Event::KernelDone { .. }), &setup());
    let running = fragile.bench.start(request(&[HOLD, SPELL]));
    let queued = fragile.bench.start(spell());
    fragile.bench.hold.wait_until_reached(1);
    fragile.arm();
    fragile.bench.hold.let_go();
    fragile.goes_on(vec![running, queued]);
}

#[test]
fn a_failing_kernel() {
    let fragile = Fragile::at(|event| matches!(event, Event::KernelFailed { .. }), &setup());
    fragile.arm();
    let failing = fragile.bench.start(request(&[TokenId(0), crate::fake_model::PANIC]));
    fragile.goes_on(vec![failing]);
}

#[test]
fn a_cancellation() {
    let fragile = Fragile::at(|event| matches!(event, Event::Cancelled(_)), &setup());
    let running = fragile.bench.start(request(&[HOLD, SPELL]));
    let queued = fragile.bench.start(spell());
    fragile.bench.hold.wait_until_reached(1);
    fragile.arm();
    queued.cancel();
    assert_failed(queued);
    fragile.bench.hold.let_go();
    fragile.goes_on(vec![running]);
}

#[test]
fn the_alarm_clock() {
    let setup = Setup { age: Nanos(50_000_000), ..setup() };
    let fragile = Fragile::at(|event| matches!(event, Event::Timer), &setup);
    fragile.arm();
    let waiting = fragile.bench.start(background(request(&[HOLD, SPELL])));
    fragile.until_it_panicked();
    fragile.bench.hold.let_go();
    fragile.goes_on(vec![waiting]);
}

/// What is kept goes to disk, since somebody else wants its pages.
#[test]
fn a_table_that_was_moved() {
    let setup = Setup { spill_pages: 100, ..setup() };
    let fragile = Fragile::at(|event| matches!(event, Event::Spilled { .. }), &setup);
    let long = |first: &str| hashed(&letters(first).repeat(2 * PAGE_TOKENS + 8), 2);
    fragile.bench.answer(long("a"));
    fragile.arm();
    let waiting = fragile.bench.start(long("b"));
    fragile.goes_on(vec![waiting]);
}

#[test]
fn keys_and_values_that_were_put_in_place() {
    let fragile = Fragile::at(|event| matches!(event, Event::Restored { .. }), &setup());
    fragile.arm();
    let begins = fragile.bench.submit(spell());
    assert!(matches!(begins.err(), Some(EngineError::Internal(_))));
    fragile.goes_on(Vec::new());
}

#[test]
fn a_graph_that_was_made() {
    let setup = beside_a_device(Preparing::refusing(Tokens(20)));
    let ready: fn(&Event) -> bool = |event| matches!(event, Event::GraphReady { .. });
    let fragile = Fragile::new(ready, |_| false, &setup, FakeDevice::Works);
    let first = fragile.bench.start(hashed(&holding(), 3));
    fragile.bench.hold.wait_until_reached(1);
    fragile.arm();
    let second = fragile.bench.start(hashed(&letters("abcdefghijklmnopqrstu"), 3));
    fragile.until_it_panicked();
    fragile.bench.hold.let_go();
    assert_eq!(fragile.bench.runtime.exact().resident, 0);
    fragile.goes_on(vec![first, second]);
}

/// The new scheduler takes it that all blocks have their prefill graphs: they are loaded before anything is begun.
#[test]
fn a_graph_that_was_loaded() {
    let loading = Arc::<Loading>::default();
    let fragile = Fragile::at(|event| matches!(event, Event::GraphLoaded { .. }), &exchanging(&loading, 2));
    fragile.arm();
    let reading = fragile.bench.start(prompt(40));
    fragile.until_it_panicked();
    let answered = answer(reading);
    assert!(answered.end.is_ok() || matches!(answered.end, Err(EngineError::Internal(_))), "{:?}", answered.end);
    let prefill = duet_scheduler::progressive::Role::Prefill;
    until("they are loaded", || loading.loads().iter().filter(|load| load.1 == prefill).count() >= 2);
    fragile.goes_on(Vec::new());
}

/// In the middle of what the scheduler has decided: some of it was carried out.
#[test]
fn a_command() {
    for command in [(|command| matches!(command, Command::Launch { .. })) as fn(&Command) -> bool, |command| {
        matches!(command, Command::Restore(_))
    }] {
        let fragile = Fragile::at_command(command);
        fragile.arm();
        assert!(matches!(fragile.bench.submit(spell()).err(), Some(EngineError::Internal(_))));
        fragile.goes_on(Vec::new());
    }
    let fragile = Fragile::at_command(|command| matches!(command, Command::Release { .. }));
    fragile.arm();
    let ended = fragile.bench.start(spell());
    let answer = answer(ended);
    assert_eq!((answer.text().as_str(), answer.error()), ("ab", &lost()));
    fragile.goes_on(Vec::new());
}

fn lost() -> EngineError {
    EngineError::Internal("the scheduler failed: a test's observer".to_owned())
}

/// An invariant of the scheduler itself.
#[test]
fn a_kernel_that_was_never_launched() {
    let bench = Bench::spelling(&letters("ab"));
    let running = bench.start(request(&[HOLD, SPELL]));
    let queued = bench.start(spell());
    bench.hold.wait_until_reached(1);
    assert!(bench.runtime.lie(Event::KernelFailed { kernel: KernelId(999) }).is_err());
    assert_failed(queued);
    // It waits for the kernel that is on the lanes, and is not confused with it.
    let next = bench.start(spell());
    assert_eq!(bench.stats().running, 1);
    bench.hold.let_go();
    assert_failed(running);
    assert_eq!(answer(next).text(), "ab");
    assert!(bench.runtime.lie(Event::KernelFailed { kernel: KernelId(999) }).is_err());
    assert_eq!(bench.answer(spell()).text(), "ab");
}

/// The scheduler fails just when a lane has reported the last kernel of an answer, and has not left it.
#[test]
fn failing_after_every_answer() {
    let bench = Bench::spelling(&letters("ab"));
    for _ in 0..100 {
        assert_eq!(bench.answer(spell()).text(), "ab");
        assert!(bench.runtime.lie(Event::KernelFailed { kernel: KernelId(999) }).is_err());
    }
}

/// One lane has a kernel whose pass holds all pages, and the other one is free: what comes waits all the same.
#[test]
fn nothing_begins_before_pages_came_back() {
    let setup = beside_a_device(Preparing::default());
    let model = FakeModel { script: letters("ab"), device: FakeDevice::Works, ..FakeModel::new(1000, 4) };
    let bench = Bench::with(model, &setup);
    let mut prompt = letters("abcdefgh").repeat(31);
    prompt[0] = HOLD;
    let running = bench.start(hashed(&prompt, 2));
    bench.hold.wait_until_reached(1);
    assert_eq!(bench.stats().kv_pages_used, 4);
    assert!(bench.runtime.lie(Event::KernelFailed { kernel: KernelId(999) }).is_err());
    let next = bench.start(spell());
    // Long enough for it to be run, if it were.
    std::thread::sleep(std::time::Duration::from_millis(100));
    bench.hold.let_go();
    assert_failed(running);
    assert_eq!(answer(next).text(), "ab");
}

/// The other client has nothing to wait for, and cancels what ended: that is no new failure.
#[test]
fn cancelling_what_failed_does_nothing() {
    let bench = Bench::spelling(&letters("ab"));
    let running = bench.start(request(&[HOLD, SPELL]));
    bench.hold.wait_until_reached(1);
    assert!(bench.runtime.lie(Event::KernelFailed { kernel: KernelId(999) }).is_err());
    running.cancel();
    bench.hold.let_go();
    assert_failed(running);
    assert_eq!(bench.answer(spell()).text(), "ab");
}

#[test]
fn a_stop_right_after_it_ends_everything() {
    let Bench { runtime, hold } = Bench::spelling(&letters("ab"));
    let start = |request| {
        let (id, events) = runtime.submit(request).unwrap();
        Generation { id, events, engine: runtime.canceller() }
    };
    let running = start(request(&[HOLD, SPELL]));
    hold.wait_until_reached(1);
    assert!(runtime.lie(Event::KernelFailed { kernel: KernelId(999) }).is_err());
    let waiting = start(spell());
    let stop = std::thread::spawn(move || drop(runtime));
    hold.let_go();
    assert_failed(running);
    assert!(matches!(answer(waiting).end, Err(EngineError::ShuttingDown) | Ok(_)));
    stop.join().unwrap();
}

#[test]
fn a_stop_that_panics_itself_ends_everything() {
    let fragile = Fragile::at(|event| matches!(event, Event::Cancelled(_)), &setup());
    let running = fragile.bench.start(request(&[HOLD, SPELL]));
    let queued = fragile.bench.start(spell());
    fragile.bench.hold.wait_until_reached(1);
    fragile.arm();
    let Fragile { bench: Bench { runtime, hold }, .. } = fragile;
    let stop = std::thread::spawn(move || drop(runtime));
    assert_failed(queued);
    hold.let_go();
    assert_failed(running);
    stop.join().unwrap();
}

/// Cannot even be dropped.
struct Cursed;

impl Observer for Cursed {
    fn event(&mut self, _: Instant, _: &Event) {}
    fn command(&mut self, _: Instant, _: &Command) {}
}

impl Drop for Cursed {
    fn drop(&mut self) {
        assert!(std::thread::panicking(), "a cursed observer");
    }
}

#[test]
fn if_nothing_can_be_begun_what_is_open_ends_and_what_comes_is_refused() {
    let model = FakeModel { script: letters("ab"), ..FakeModel::new(1000, 100) };
    let bench = Bench::observed(model, &setup(), vec![Box::new(Cursed)]);
    let running = bench.start(request(&[HOLD, SPELL]));
    let queued = bench.start(spell());
    bench.hold.wait_until_reached(1);
    assert!(bench.runtime.lie(Event::KernelFailed { kernel: KernelId(999) }).is_err());
    assert_failed(queued);
    assert!(!bench.runtime.is_running());
    assert!(matches!(bench.submit(spell()).err(), Some(EngineError::Internal(_))));
    bench.hold.let_go();
    assert_failed(running);
    // The helpers end, and the lanes.
    drop(bench);
}
