//! Work on pinned cores, as an engine's lanes do it.

use duet_device::{Cpu, CpuConfig, Pinning};
use duet_kernels::crew::Crew;
use std::sync::mpsc;

/// Why nothing ran: threads could not be started, or a lane stopped.
#[derive(Debug, thiserror::Error)]
#[error("cannot run on this machine's cores: {0}")]
pub struct CoresError(String);

/// Runs `work` with `threads` threads.
pub(crate) fn on_cores<T, E>(
    threads: u16,
    work: impl FnOnce(&dyn Crew) -> Result<T, E> + Send + 'static,
) -> Result<T, E>
where
    T: Send + 'static,
    E: From<CoresError> + Send + 'static,
{
    let lanes = CpuConfig { lanes: vec![usize::from(threads.max(1))], pinning: Pinning::Pinned };
    let cpu = Cpu::start(&lanes).map_err(|error| CoresError(error.to_string()))?;
    let (send, receive) = mpsc::channel();
    let lanes = cpu.lanes();
    let job = Box::new(move |crew: &dyn Crew| {
        // The receiver waits for this; if it is gone, nobody wants it.
        let _ = send.send(work(crew));
    });
    lanes.launch(lanes.all(), job).map_err(|error| CoresError(error.to_string()))?;
    receive.recv().map_err(|_| CoresError("a kernel panicked".to_owned()))?
}
