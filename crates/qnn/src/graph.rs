//! A graph that is ready on the HTP.

use crate::device::Device;
use crate::lane::Lane;
use crate::lent::{Names, run};
use crate::ports::ports;
use crate::session;
use duet_runtimes::{Buffer, Error, Graph, Ports, Tensors};
use duet_types::Nanos;
use ort::session::Session;
use std::fmt;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

/// A graph. Its session is here, or away with an inference.
pub(crate) struct HtpGraph {
    here: Option<Loaded>,
    away: Option<Receiver<Back>>,
    /// What was started and waits for the session.
    pending: Option<Tensors>,
    ports: Ports,
    /// Absent for a graph that was taken up: whoever did that has its bytes.
    context: Option<Vec<u8>>,
    lane: Arc<Lane>,
}

/// A session, and what is told to it with each inference.
#[derive(Debug)]
struct Loaded {
    session: Session,
    ports: Ports,
    names: Names,
}

/// What comes back from an inference.
type Back = (Loaded, Result<Vec<Buffer>, Error>);

impl HtpGraph {
    /// Compiles a model.
    pub(crate) fn compiled(device: &Device, model: &[u8]) -> Result<Self, Error> {
        let context = session::compile(device, model)?;
        Ok(Self { context: Some(context.clone()), ..Self::opened(device, &context)? })
    }

    /// Takes up a model that was compiled.
    pub(crate) fn opened(device: &Device, model: &[u8]) -> Result<Self, Error> {
        let session = session::open(device, model)?;
        let ports = ports(&session)?;
        let loaded = Loaded { session, names: Names::of(&ports)?, ports: ports.clone() };
        Ok(Self {
            here: Some(loaded),
            away: None,
            pending: None,
            ports,
            context: None,
            lane: Arc::clone(device.lane()),
        })
    }

    /// The session, which an inference that nobody waited for may still have.
    fn take(&mut self, until: Instant) -> Option<Loaded> {
        if let Some(loaded) = self.here.take() {
            return Some(loaded);
        }
        let (loaded, _) = self.away.as_ref()?.recv_timeout(until.saturating_duration_since(Instant::now())).ok()?;
        self.away = None;
        Some(loaded)
    }

    /// Gives the session away with an inference.
    fn launch(&mut self, mut loaded: Loaded, tensors: Tensors) -> Result<(), Error> {
        let (sender, receiver) = channel();
        let job = move || {
            let result = run(&mut loaded.session, &loaded.ports, &loaded.names, tensors);
            // Whoever waited may have gone.
            let _ = sender.send((loaded, result));
        };
        self.pending = None;
        self.away = Some(receiver);
        self.lane.run(job).map_err(Error::Thread)
    }
}

impl Graph for HtpGraph {
    fn ports(&self) -> &Ports {
        &self.ports
    }

    fn export(&self) -> Result<Vec<u8>, Error> {
        self.context.clone().ok_or(Error::Imported)
    }

    fn start(&mut self, tensors: Tensors) -> Result<(), Error> {
        match self.take(Instant::now()) {
            Some(loaded) => self.launch(loaded, tensors),
            None => {
                self.pending = Some(tensors);
                Ok(())
            }
        }
    }

    fn wait(&mut self, limit: Nanos) -> Result<Vec<Buffer>, Error> {
        let until = Instant::now() + Duration::from_nanos(limit.0);
        if let Some(tensors) = self.pending.take() {
            let loaded = self.take(until).ok_or(Error::Hung { limit })?;
            self.launch(loaded, tensors)?;
        }
        let receiver = self.away.take().ok_or(Error::NotStarted)?;
        match receiver.recv_timeout(until.saturating_duration_since(Instant::now())) {
            Ok((loaded, result)) => {
                self.here = Some(loaded);
                result
            }
            Err(RecvTimeoutError::Timeout) => {
                self.away = Some(receiver);
                self.lane.leave();
                Err(Error::Hung { limit })
            }
            Err(RecvTimeoutError::Disconnected) => {
                Err(Error::DeviceLost { message: "its thread has ended".to_owned() })
            }
        }
    }
}

impl fmt::Debug for HtpGraph {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "HtpGraph({:?})", self.ports)
    }
}
