//! Work on pinned cores, as an engine's lanes do it.

use super::GraphsError;
use duet_device::{Accelerator, Cpu, CpuConfig, Pinning};
use duet_kernels::crew::Crew;
use std::sync::mpsc;

/// Runs `work` with so many threads.
pub(super) fn on_cores<T: Send + 'static>(
    threads: u16,
    work: impl FnOnce(&dyn Crew) -> Result<T, GraphsError> + Send + 'static,
) -> Result<T, GraphsError> {
    let lanes = CpuConfig { lanes: vec![usize::from(threads.max(1))], pinning: Pinning::Pinned };
    let cpu = Cpu::start(&lanes).map_err(|error| GraphsError::Lanes(error.to_string()))?;
    let (send, receive) = mpsc::channel();
    let lanes = cpu.lanes();
    let job = Box::new(move |crew: &dyn Crew| {
        // The receiver waits for this; if it is gone, nobody wants it.
        let _ = send.send(work(crew));
    });
    lanes.launch(lanes.descriptor().lanes, job).map_err(|error| GraphsError::Lanes(error.to_string()))?;
    receive.recv().map_err(|_| GraphsError::Lanes("a kernel panicked".to_owned()))?
}
