//! The profile of a machine for one model: what the scheduler's annotations are made of.
//!
//! It holds the two anchors of every lane and of their team, what a launch costs, and what kernels that run side by side
//! do to each other, all measured with the model's own kernels on the engine's own lanes. It is measured once, in
//! seconds, when a model first runs on a machine, and kept in a file. (Agent.xpu §3.1, §4.2, appendix A)

mod attention;
mod bench;
mod capabilities;
mod check;
mod copies;
mod effort;
mod encoder;
mod estimate;
mod heg;
mod layers;
mod measure;
mod reach;
mod read_ahead;
mod sweep;
mod times;

pub use check::PredictionError;
pub use effort::Effort;
pub use heg::heg;
pub(crate) use heg::with_disk;
pub use sweep::{DecodeLatency, PrefillLatency, Sweep};

use check::check;
use sweep::sweep;

pub(crate) use encoder::encoder_heg;
pub(crate) use estimate::estimate;
pub(crate) use measure::measure;

use crate::config::EngineConfig;
use crate::executors::{Device, Executors};
use duet_device::{Cpu, CpuConfig, CpuLanes, available_cores};
use duet_driver::Rates;
use duet_files::{plain, write_whole};
use duet_kernels::read_ahead::ReadAhead;
use duet_model::Model;
use duet_model::kv::KvFormat;
use duet_scheduler::Machine;
use duet_scheduler::machine::PerRow;
use serde::{Deserialize, Serialize};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A machine as one model sees it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Profile {
    /// What it was measured with: a profile of anything else says nothing.
    pub of: Subject,
    /// The lanes.
    pub machine: Machine,
    /// When it was measured, in seconds since 1970; [`Self::NOT_MEASURED`] if it is an estimate.
    #[serde(default)]
    pub measured_at: u64,
    /// How products of few rows fetch their weights; absent if that was not tried.
    #[serde(with = "read_ahead", default)]
    pub read_ahead: Option<ReadAhead>,
    /// What a short probe of one core found meanwhile: later probes say how much faster or slower the machine is than
    /// this profile. (The fastest, as with the anchors.)
    pub probe: Rates,
    /// The share of the time that a lane's threads wanted their cores in which they waited for them, while the lane was measured;
    /// of the lane that waited most. Zero where the operating system does not tell, absent in profiles from before.
    #[serde(default)]
    pub waited: Option<f64>,
    /// Whether later starts load it however busy the machine was: somebody asked for it, or it was busy at an earlier start too.
    #[serde(default)]
    pub is_settled: bool,
}

/// Why what was measured may not hold: the machine was busy with something else.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
pub enum Disturbance {
    /// Threads waited for their cores, for this share of the time.
    #[error("other programs had a lane's cores {:.0} % of the time that it wanted them", 100.0 * .0)]
    Waited(f64),
    /// A team was slower than its best lane, since its members wait for each other.
    #[error("all cores together were slower than one lane of them")]
    SlowTeam,
}

/// What a profile was measured with.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Subject {
    /// The model's name.
    pub model: String,
    /// Its packed weights in bytes: files of one name differ in their types.
    pub weight_bytes: u64,
    /// How keys and values are stored.
    pub kv: String,
    /// Threads of each lane.
    pub lanes: Vec<usize>,
    /// The devices of the first lanes, with their versions.
    #[serde(default)]
    pub devices: Vec<String>,
    /// The instruction set.
    pub isa: String,
    /// The version of the program: kernels change.
    pub version: String,
}

/// What an engine predicts with on a machine of cores that was never measured with its model.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FirstProfile {
    /// What it measures as it starts, in a second or two.
    #[default]
    Measured,
    /// An estimate, for a first answer that does not wait: it is not kept.
    Estimated,
}

/// Why there is no profile.
#[derive(Debug, thiserror::Error)]
pub enum ProfileError {
    /// Threads could not be started, or a lane stopped.
    #[error("cannot run on this machine's cores: {0}")]
    Lanes(String),
    /// A pass was refused.
    #[error("a pass was refused: {0}")]
    Pass(String),
}

/// Lanes to measure: those that an engine of its configuration would have.
#[derive(Debug)]
pub struct Profiler {
    model: Arc<Model>,
    kv: KvFormat,
    config: CpuConfig,
    executors: Arc<Executors>,
    cpu: Cpu,
}

/// What is measured: a model as an engine would run it.
#[derive(Clone, Copy)]
pub(crate) struct Measured<'a> {
    pub(crate) model: &'a Arc<Model>,
    pub(crate) kv: KvFormat,
    pub(crate) cpu: &'a CpuConfig,
    pub(crate) executors: &'a Arc<Executors>,
}

/// The executors of an engine's configuration, and their lanes; absent a number of threads, one for each core that is made for
/// work.
pub(crate) fn executors(model: &Model, config: &EngineConfig) -> (Arc<Executors>, CpuConfig) {
    let threads = config.threads.unwrap_or_else(|| available_cores().len());
    let executors = Executors::new(model.work(), config.devices.clone(), config.fallback);
    let lanes = match executors.devices().len() {
        0 => CpuConfig::by_speed(threads),
        devices => CpuConfig::beside_devices(devices, threads),
    };
    (Arc::new(executors), lanes)
}

impl Profiler {
    /// Starts the lanes of such an engine: of `config`, its threads, its devices and its form of keys and values count.
    ///
    /// # Errors
    /// If threads cannot be started.
    pub fn start(model: Arc<Model>, config: &EngineConfig) -> Result<Self, ProfileError> {
        let (executors, lanes) = executors(&model, config);
        let cpu = Cpu::start(&lanes).map_err(|error| ProfileError::Lanes(error.to_string()))?;
        Ok(Self { model, kv: config.kv_format, config: lanes, executors, cpu })
    }

    fn measured(&self) -> Measured<'_> {
        Measured { model: &self.model, kv: self.kv, cpu: &self.config, executors: &self.executors }
    }

    /// Measures the profile.
    ///
    /// # Errors
    /// [`ProfileError`].
    pub fn measure(&self, effort: Effort) -> Result<Profile, ProfileError> {
        measure(&self.measured(), &self.cpu.lanes(), effort)
    }

    /// Measures what an engine of these cores measures at its first start, and keeps it in `folder`.
    ///
    /// # Errors
    /// [`ProfileError`].
    pub fn measure_first(&self, folder: &Path) -> Result<(), ProfileError> {
        measured_and_kept(&self.measured(), &self.cpu.lanes(), Some(folder)).map(drop)
    }

    /// Compares what `profile` predicts with what is measured now, but of devices that take chunks, or hold a part of the layers.
    ///
    /// # Errors
    /// [`ProfileError`].
    pub fn check(&self, profile: &Profile) -> Result<PredictionError, ProfileError> {
        check(&self.measured(), &self.cpu.lanes(), profile)
    }

    /// Measures batches and contexts on the cores.
    ///
    /// # Errors
    /// [`ProfileError`].
    pub fn sweep(&self) -> Result<Sweep, ProfileError> {
        sweep(&self.measured(), &self.cpu.lanes())
    }
}

/// Measures in a hurry, and writes the profile to `folder`. Where the machine was busy with something else, the next start
/// measures again; that one's is settled, so that a machine that is never idle is not measured at each start.
pub(crate) fn measured_and_kept(
    of: &Measured<'_>,
    lanes: &CpuLanes,
    folder: Option<&Path>,
) -> Result<Profile, ProfileError> {
    tracing::info!("measuring this machine with {}", of.model.config().name);
    let mut profile = measure(of, lanes, Effort::Quick)?;
    if profile.disturbance().is_some() {
        // It takes a second or two, and what disturbed it may be over.
        let second = measure(of, lanes, Effort::Quick)?;
        if second.disturbance().is_none() || second.waited <= profile.waited {
            profile = second;
        }
    }
    let earlier = folder.and_then(|folder| Profile::read(folder, &profile.of));
    profile.is_settled = profile.is_as_busy_as(earlier.as_ref());
    if let Some(disturbance) = profile.disturbance().filter(|_| !profile.is_settled) {
        tracing::warn!("the machine is busy ({disturbance}); it will be measured again at the next start");
    }
    if let Some(Err(error)) = folder.map(|folder| profile.save(folder)) {
        // Only the next start is slower.
        tracing::warn!("the profile of this machine could not be saved: {error}");
    }
    Ok(profile)
}

impl Measured<'_> {
    pub(crate) fn subject(&self) -> Subject {
        Subject {
            model: self.model.config().name.clone(),
            weight_bytes: self.model.weight_bytes().0,
            kv: format!("{:?}", self.kv).to_lowercase(),
            lanes: self.cpu.lanes.clone(),
            devices: self.executors.devices().map(Device::identity).collect(),
            isa: self.model.isa().to_string(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
        }
    }
}

impl Subject {
    /// The name of its file: readable, and different for every subject.
    fn file_name(&self) -> String {
        let lanes: Vec<String> = self.lanes.iter().map(usize::to_string).collect();
        let lanes = lanes.join("-");
        let lanes = match self.devices.len() {
            0 => lanes,
            // Versions and settings are long, and a file's name is not.
            count => format!("{count}-devices-{:016x}-{lanes}", digest(&self.devices)),
        };
        let model = plain(&self.model);
        format!("{model}.{}.{}.{lanes}.{}.{}.json", self.weight_bytes, self.kv, plain(&self.isa), plain(&self.version))
    }
}

/// FNV-1a, the same in every build: what a file holds says whether it is the right one.
fn digest(texts: &[String]) -> u64 {
    let bytes = texts.iter().flat_map(|text| text.bytes().chain([0]));
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

impl Profile {
    /// When an estimate was measured.
    pub const NOT_MEASURED: u64 = 0;

    /// The profile of `subject` in `folder`, if there is one that can be read, lacks nothing that is measured, and either was not
    /// [disturbed](Self::disturbance) or is settled all the same.
    #[must_use]
    pub fn load(folder: &Path, subject: &Subject) -> Option<Self> {
        Self::read(folder, subject).filter(|profile| profile.is_settled || profile.disturbance().is_none())
    }

    /// The same, however busy the machine was.
    fn read(folder: &Path, subject: &Subject) -> Option<Self> {
        let text = std::fs::read_to_string(folder.join(subject.file_name())).ok()?;
        let profile: Self = serde_json::from_str(&text).ok()?;
        let fits = profile.of == *subject && profile.machine.lanes.len() == subject.lanes.len();
        let fits = fits && profile.read_ahead.is_some() && profile.waited.is_some();
        (fits && profile.is_sane()).then_some(profile)
    }

    /// A profile as it was written to a file.
    ///
    /// # Errors
    /// If the text is none, or it describes no machine.
    pub fn parse(text: &str) -> Result<Self, String> {
        let profile: Self = serde_json::from_str(text).map_err(|error| error.to_string())?;
        if profile.machine.lanes.is_empty() || !profile.is_sane() {
            return Err("a lane's rates must be greater than zero, and `exposed` within 0 and 1".to_owned());
        }
        Ok(profile)
    }

    /// Writes it to `folder`, whole or not at all. Returns where.
    ///
    /// # Errors
    /// As the file system says.
    pub fn save(&self, folder: &Path) -> io::Result<PathBuf> {
        let path = folder.join(self.of.file_name());
        write_whole(&path, &serde_json::to_string_pretty(self).map_err(io::Error::other)?)?;
        Ok(path)
    }

    /// What else the machine was busy with. A disturbed profile is used, for want of a better one, and the next start measures
    /// again.
    #[must_use]
    pub fn disturbance(&self) -> Option<Disturbance> {
        if let Some(waited) = self.waited.filter(|waited| *waited > WAITED_AT_MOST) {
            return Some(Disturbance::Waited(waited));
        }
        // A device and the cores may well be slower together than apart, where the device is made of cores.
        let team = self.machine.teams.first().filter(|_| self.of.devices.is_empty())?;
        let lanes = self.machine.lanes.iter().map(|lane| lane.anchors.macs_per_s);
        (team.anchors.macs_per_s < lanes.fold(0.0, f64::max)).then_some(Disturbance::SlowTeam)
    }

    /// Whether both this and what an earlier start measured were disturbed.
    fn is_as_busy_as(&self, earlier: Option<&Self>) -> bool {
        self.disturbance().is_some() && earlier.is_some_and(|earlier| earlier.disturbance().is_some())
    }

    /// A file may hold anything; predictions divide by these.
    fn is_sane(&self) -> bool {
        let lanes = self.machine.lanes.iter().map(|lane| &lane.anchors);
        let mut all = lanes.chain(self.machine.teams.iter().map(|team| &team.anchors));
        all.all(|anchors| {
            let rates = [anchors.macs_per_s, anchors.attention_macs_per_s, anchors.bytes_per_s];
            let rows = [anchors.per_row.qkv, anchors.per_row.attention];
            rates.iter().all(|rate| rate.is_finite() && *rate > 0.0)
                && rows.iter().all(|seconds| (0.0..=PerRow::MOST).contains(seconds))
                && (0.0..=1.0).contains(&anchors.exposed)
                && anchors.few_rows.is_sane()
        }) && self.machine.is_sane()
            && self.probe.are_sane()
    }
}

/// Between what lanes wait on an idle machine of two cores (0.2 %) and beside one busy program there (20 %).
const WAITED_AT_MOST: f64 = 0.05;

#[cfg(test)]
mod tests {
    use super::*;
    use duet_scheduler::machine::{Anchors, Capabilities, FewRows, Lane, PerRow, Team};
    use duet_types::Nanos;

    fn profile(bytes_per_s: f64) -> Profile {
        let of = Subject {
            model: "A model/with slashes".to_owned(),
            weight_bytes: 7,
            kv: "f16".to_owned(),
            lanes: vec![1],
            devices: Vec::new(),
            isa: "portable".to_owned(),
            version: "1.2.3".to_owned(),
        };
        let anchors = Anchors {
            macs_per_s: 1e11,
            attention_macs_per_s: 2e10,
            bytes_per_s,
            launch: Nanos(300),
            exposed: 0.1,
            per_row: PerRow::NONE,
            few_rows: FewRows::NONE,
        };
        let lane = Lane::new("cpu0", Capabilities::CORES, anchors);
        let probe = Rates { macs_per_s: 2e11, bytes_per_s: 2e10 };
        let read_ahead = Some(ReadAhead::ALL[3]);
        Profile {
            of,
            machine: Machine::of(vec![lane]),
            measured_at: 7,
            read_ahead,
            probe,
            waited: Some(0.0),
            is_settled: false,
        }
    }

    #[test]
    fn a_profile_is_found_again_for_its_own_subject_only() {
        let folder = tempfile::tempdir().unwrap();
        let profile = profile(1.25e10);
        profile.save(&folder.path().join("not/yet/there")).unwrap();
        profile.save(folder.path()).unwrap();
        assert_eq!(Profile::load(folder.path(), &profile.of), Some(profile.clone()));
        let other = Subject { lanes: vec![2], ..profile.of };
        assert_eq!(Profile::load(folder.path(), &other), None);
    }

    #[test]
    fn what_was_measured_on_a_busy_machine_is_measured_again_once() {
        let folder = tempfile::tempdir().unwrap();
        let profile = |waited, is_settled| Profile { waited, is_settled, ..profile(1.0) };
        let is_loaded = |profile: Profile| {
            profile.save(folder.path()).unwrap();
            Profile::load(folder.path(), &profile.of).is_some()
        };
        assert!(is_loaded(profile(Some(0.0), false)) && is_loaded(profile(Some(0.01), false)));
        assert!(!is_loaded(profile(Some(0.2), false)));
        assert!(is_loaded(profile(Some(0.2), true)));
        let (busy, idle) = (profile(Some(0.2), false), profile(Some(0.0), false));
        let settles = |earlier| busy.is_as_busy_as(earlier);
        assert_eq!([None, Some(&idle), Some(&busy)].map(settles), [false, false, true]);
        assert!(!idle.is_as_busy_as(Some(&busy)), "it needs no settling");
        assert!(!is_loaded(profile(None, false)), "one from before does not tell");
    }

    #[test]
    fn how_weights_are_fetched_is_kept_by_name_and_tried_if_it_was_not() {
        let folder = tempfile::tempdir().unwrap();
        let profile = profile(1.0);
        let path = profile.save(folder.path()).unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        let name = "\"panels side by side, to the second cache\"";
        assert!(text.contains(name), "{text}");
        std::fs::write(&path, text.replace(name, "null")).unwrap();
        assert_eq!(Profile::load(folder.path(), &profile.of), None);
        assert_eq!(Profile::parse(&text.replace(name, "null")).unwrap().read_ahead, None);
        assert_eq!(Profile::parse(&text.replace("read_ahead", "unknown")).unwrap().read_ahead, None);
        assert!(Profile::parse(&text.replace("to the second", "to the third")).is_err());
    }

    /// A share of nothing would have a lane rest for ever, and a team of lanes that there are not would be looked for.
    #[test]
    fn lanes_that_cannot_be_are_measured_again() {
        let folder = tempfile::tempdir().unwrap();
        let wrong: [fn(&mut Machine); 3] = [
            |machine| machine.lanes[0].occupancy = 0.0,
            |machine| machine.contention.memory_beside_memory = -1.0,
            |machine| {
                let anchors = machine.lanes[0].anchors;
                machine.teams.push(Team { lanes: duet_types::LaneSet::first(2), anchors });
            },
        ];
        for change in wrong {
            let mut profile = profile(1.0);
            profile.save(folder.path()).unwrap();
            assert_eq!(Profile::load(folder.path(), &profile.of).as_ref(), Some(&profile));
            change(&mut profile.machine);
            profile.save(folder.path()).unwrap();
            assert_eq!(Profile::load(folder.path(), &profile.of), None);
        }
    }

    #[test]
    fn a_file_that_makes_no_sense_is_measured_again() {
        let folder = tempfile::tempdir().unwrap();
        for wrong in [0.0, -1.0] {
            let profile = profile(wrong);
            profile.save(folder.path()).unwrap();
            assert_eq!(Profile::load(folder.path(), &profile.of), None);
        }
        let profile = profile(1.0);
        let path = profile.save(folder.path()).unwrap();
        for wrong in ["", "{", "{\"of\": 1}", "null"] {
            std::fs::write(&path, wrong).unwrap();
            assert_eq!(Profile::load(folder.path(), &profile.of), None, "{wrong}");
        }
    }
}
