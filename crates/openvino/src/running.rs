//! An inference that was started: waiting for it, with a watchdog, and what comes back.

use crate::infer::InferRequest;
use crate::tensor::View;
use duet_runtimes::Completion;
use duet_runtimes::Error;
use duet_runtimes::{Buffer, Tensors};
use duet_runtimes::{UnderWay, Watched};
use duet_types::Nanos;
use std::sync::Arc;

/// An inference that is under way. If it is dropped it is asked to stop, and its memory is freed when it has.
#[derive(Debug)]
pub struct Running {
    watched: Watched<Bound>,
}

/// An inference that has ended well.
#[derive(Debug)]
pub struct Finished {
    /// The request, to be used again.
    pub request: InferRequest,
    /// The outputs, in the order of the graph's ports.
    pub outputs: Vec<Buffer>,
}

impl Running {
    /// # Invariant
    /// `completion` is the one that `bound`'s request tells, and `bound` was started.
    pub(crate) fn new(bound: Bound, completion: Arc<Completion>) -> Self {
        Self { watched: Watched::new(bound, completion) }
    }

    /// Whether it has ended, well or badly.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.watched.is_done()
    }

    /// Waits for it, however long it takes.
    ///
    /// # Errors
    /// If the device failed; the request is not used again.
    pub fn wait(self) -> Result<Finished, Error> {
        self.watched.wait()
    }

    /// Waits for it, but no longer than `limit`.
    ///
    /// # Errors
    /// [`Error::Hung`] if it has not ended then: request and outputs stay with the device. Otherwise as [`Self::wait`].
    pub fn wait_for(self, limit: Nanos) -> Result<Finished, Error> {
        self.watched.wait_for(limit)
    }
}

/// A request and the memory that it is bound to.
#[derive(Debug)]
pub(crate) struct Bound {
    // Freed first: OpenVINO then has ended what uses the rest.
    request: InferRequest,
    views: Vec<View>,
    tensors: Tensors,
}

impl Bound {
    /// `views` are those of the outputs among `tensors`.
    pub(crate) fn new(request: InferRequest, views: Vec<View>, tensors: Tensors) -> Self {
        Self { request, views, tensors }
    }

    /// Starts the inference.
    pub(crate) fn start(&self) -> Result<(), Error> {
        let library = self.request.library();
        // SAFETY: the request lives, and is bound to buffers that `self` owns; they do not move when it does, and are
        // freed after the request, which waits for what it has started.
        let status = unsafe { (library.functions.ov_infer_request_start_async)(self.request.raw()) };
        library.check("ov_infer_request_start_async", status)
    }
}

impl UnderWay for Bound {
    type Outcome = Finished;

    fn cancel(&mut self) {
        // SAFETY: the request lives. It is a wish: whether it is granted shows in how the inference ends.
        let _ = unsafe { (self.request.library().functions.ov_infer_request_cancel)(self.request.raw()) };
    }

    fn finish(self) -> Result<Finished, Error> {
        let library = self.request.library();
        // Word comes a moment before the inference is over for OpenVINO, and without how it ended.
        // SAFETY: the request lives.
        let status = unsafe { (library.functions.ov_infer_request_wait)(self.request.raw()) };
        library.check("ov_infer_request_wait", status)?;
        self.request.check_outputs(&self.views)?;
        Ok(Finished { request: self.request, outputs: self.tensors.outputs })
    }
}
