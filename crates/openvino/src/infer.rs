//! An infer request: one inference at a time, on memory that the caller lends.
//!
//! Nothing is copied: OpenVINO's tensors are views of the caller's memory. [`InferRequest::run`] borrows it, and
//! returns only when the inference has ended. [`InferRequest::start`] takes it along (see `buffer.rs`) and returns at
//! once.
//!
//! Between two inferences a request still refers to the memory of the one before, which may be gone. It is never read
//! then: all tensors are bound anew before each inference.

use crate::compiled::CompiledGraph;
use crate::handle::Handle;
use crate::library::Library;
use crate::raw;
use crate::running::{Bound, Running};
use crate::tensor::{Lent, View};
use duet_runtimes::LentRows;
use duet_runtimes::{ALIGNMENT, Tensors};
use duet_runtimes::{Completion, Then};
use duet_runtimes::{Error, Side};
use std::ffi::c_void;
use std::sync::Arc;

/// A request. Making one allocates what lies between the nodes of its graph.
#[derive(Debug)]
pub struct InferRequest {
    // Freed first: OpenVINO may call back until then.
    raw: Handle<raw::InferRequest>,
    /// OpenVINO keeps its address.
    _callback: Arc<raw::Callback>,
    completion: Arc<Completion>,
    graph: CompiledGraph,
}

impl InferRequest {
    pub(crate) fn new(graph: &CompiledGraph) -> Result<Self, Error> {
        let library = graph.raw().library();
        let functions = &library.functions;
        // SAFETY: the graph lives, and OpenVINO hands over what it makes.
        let raw = unsafe {
            Handle::made(library, "ov_compiled_model_create_infer_request", |request| {
                (functions.ov_compiled_model_create_infer_request)(graph.raw().as_ptr(), request)
            })?
        };
        let completion = Arc::new(Completion::default());
        let argument = Arc::as_ptr(&completion).cast_mut().cast();
        let callback = Arc::new(raw::Callback { function: Some(on_completion), argument });
        // SAFETY: the request lives. The callback and what it points to live until after the request was freed, which
        // waits for what it has started.
        let status = unsafe { (functions.ov_infer_request_set_callback)(raw.as_ptr(), Arc::as_ptr(&callback)) };
        library.check("ov_infer_request_set_callback", status)?;
        Ok(Self { raw, _callback: callback, completion, graph: graph.clone() })
    }

    /// The graph that it runs.
    #[must_use]
    pub fn graph(&self) -> &CompiledGraph {
        &self.graph
    }

    /// Runs the graph; returns when `outputs` are written. Tensors are given in the order of the graph's ports. Each
    /// fills its port, all have the same number of rows where rows vary, and each begins at a multiple of [`ALIGNMENT`]
    /// bytes. There is no watchdog: borrowed memory cannot be left to a device that hangs.
    ///
    /// # Errors
    /// If the tensors do not fit, or the device fails. What is in `outputs` then means nothing.
    pub fn run(&mut self, inputs: &[&[f32]], outputs: &mut [&mut [f32]]) -> Result<(), Error> {
        let read = inputs.iter().map(|values| Lent::shared(values));
        let written = outputs.iter_mut().map(|values| Lent::exclusive(values));
        let views = self.bind(read, written)?;
        // SAFETY: the request lives, and nothing else uses it: the borrow is exclusive. It refers to the memory that
        // was bound just now; the borrows of that last until this function returns, and the inference has ended then.
        let status = unsafe { (self.library().functions.ov_infer_request_infer)(self.raw.as_ptr()) };
        self.library().check("ov_infer_request_infer", status)?;
        self.check_outputs(&views)
    }

    /// Starts the graph on `tensors` and returns. Tensors are as in [`Self::run`].
    ///
    /// # Errors
    /// If the tensors do not fit, or the device takes no work.
    pub fn start(self, tensors: Tensors) -> Result<Running, Error> {
        self.start_with(tensors, None)
    }

    /// As [`Self::start`]; `then` is called when the inference has ended, well or badly, on a thread of the device. It
    /// should be short, and must neither wait for the inference nor drop it: the device waits for `then`.
    ///
    /// # Errors
    /// As [`Self::start`]; `then` is not called.
    pub fn start_then(self, tensors: Tensors, then: impl FnOnce() + Send + 'static) -> Result<Running, Error> {
        self.start_with(tensors, Some(Box::new(then)))
    }

    fn start_with(self, mut tensors: Tensors, then: Option<Then>) -> Result<Running, Error> {
        let read = tensors.inputs.iter().map(|buffer| Lent::shared(buffer));
        let written = tensors.outputs.iter_mut().map(|buffer| Lent::exclusive(buffer));
        let views = self.bind(read, written)?;
        let completion = Arc::clone(&self.completion);
        completion.begin(then);
        let bound = Bound::new(self, views, tensors);
        bound.start()?;
        Ok(Running::new(bound, completion))
    }

    /// Makes views of the memory and gives them to the request; returns those of the outputs. No memory is touched:
    /// that it can be is the concern of who lets the request run.
    fn bind(
        &self,
        read: impl ExactSizeIterator<Item = Lent>,
        written: impl ExactSizeIterator<Item = Lent>,
    ) -> Result<Vec<View>, Error> {
        self.check_count(Side::Input, read.len())?;
        self.check_count(Side::Output, written.len())?;
        let mut rows = LentRows::default();
        for (index, lent) in read.enumerate() {
            self.bind_one(Side::Input, index, &lent, &mut rows)?;
        }
        let outputs = written.enumerate();
        outputs.map(|(index, lent)| self.bind_one(Side::Output, index, &lent, &mut rows)).collect()
    }

    fn bind_one(&self, side: Side, index: usize, lent: &Lent, rows: &mut LentRows) -> Result<View, Error> {
        if !(lent.start as usize).is_multiple_of(ALIGNMENT) {
            return Err(Error::Misaligned { side, index });
        }
        let shape = rows.fit(&self.graph.ports().of(side)[index], side, index, lent.len)?;
        let view = View::new(self.raw.library(), lent, shape)?;
        let functions = &self.library().functions;
        let (call, set) = match side {
            Side::Input => ("set_input_tensor", functions.ov_infer_request_set_input_tensor_by_index),
            Side::Output => ("set_output_tensor", functions.ov_infer_request_set_output_tensor_by_index),
        };
        // SAFETY: request and view live, and the request shares the view.
        self.library().check(call, unsafe { set(self.raw.as_ptr(), index, view.as_ptr()) })?;
        Ok(view)
    }

    fn check_count(&self, side: Side, given: usize) -> Result<(), Error> {
        let wanted = self.graph.ports().of(side).len();
        if wanted == given { Ok(()) } else { Err(Error::Count { side, wanted, given }) }
    }

    /// Outputs of dynamic shape must have come out as they were lent. That fewer rows came shows after the inference
    /// only.
    pub(crate) fn check_outputs(&self, views: &[View]) -> Result<(), Error> {
        let dynamic =
            self.graph.ports().outputs.iter().zip(views).enumerate().filter(|(_, (port, _))| port.is_dynamic());
        for (index, (_, view)) in dynamic {
            let result = self.output(index)?;
            if let Err(came) = view.holds(&result)? {
                return Err(Error::OutputShape {
                    index,
                    came: format!("{came:?}"),
                    lent: format!("{:?}", view.shape()),
                });
            }
        }
        Ok(())
    }

    /// The tensor that the request has written.
    fn output(&self, index: usize) -> Result<Handle<raw::Tensor>, Error> {
        let library = self.raw.library();
        let get = library.functions.ov_infer_request_get_output_tensor_by_index;
        // SAFETY: the request lives, and OpenVINO hands over what it makes.
        unsafe { Handle::made(library, "get_output_tensor", |tensor| get(self.raw.as_ptr(), index, tensor)) }
    }

    pub(crate) fn raw(&self) -> *mut raw::InferRequest {
        self.raw.as_ptr()
    }

    pub(crate) fn library(&self) -> &Library {
        self.raw.library()
    }
}

/// OpenVINO calls this when an inference that was started has ended.
unsafe extern "C" fn on_completion(completion: *mut c_void) {
    // SAFETY: it is the completion that the request's callback was made with, which the request keeps until OpenVINO
    // calls back no more.
    let completion = unsafe { &*completion.cast::<Completion>() };
    completion.tell();
}
