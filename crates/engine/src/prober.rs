//! Probes what the machine gives, a few times a second while the engine runs, for whoever records the run.
//!
//! A thread that sleeps between probes: they take about half a millisecond of one core each, a fifth of a per cent.

use crate::lane_watch::LaneWatch;
use crate::speed_probe::SpeedProbe;
use duet_driver::Probe;
use std::io;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

/// The probes, as the world holds them. Dropping it ends the thread.
pub(crate) struct Prober {
    _stop: Sender<()>,
}

impl Prober {
    /// Starts the thread; `report` is called on it with every probe.
    pub(crate) fn start(
        mut speed: SpeedProbe,
        mut lanes: LaneWatch,
        report: impl Fn(Probe) + Send + 'static,
    ) -> io::Result<(Self, JoinHandle<()>)> {
        let (stop, stopped) = channel();
        let thread = std::thread::Builder::new().name("duet-probe".to_owned()).spawn(move || {
            while stopped.recv_timeout(INTERVAL) == Err(RecvTimeoutError::Timeout) {
                report(Probe { rates: speed.take(), lanes: lanes.look() });
            }
        })?;
        Ok((Self { _stop: stop }, thread))
    }
}

/// Machines change their speed within seconds.
const INTERVAL: Duration = Duration::from_millis(250);
