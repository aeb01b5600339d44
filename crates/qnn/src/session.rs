//! Sessions: graphs that ONNX Runtime has ready on the HTP.

use crate::device::Device;
use crate::error::refused;
use duet_runtimes::Error;
use ort::compiler::ModelCompiler;
use ort::logging::LogLevel;
use ort::session::Session;
use ort::session::builder::SessionBuilder;

/// Compiles a model: its bytes then hold what the HTP runs (an *EP context*) and nothing of the model. Takes some tenths
/// of a second for a block.
pub(crate) fn compile(device: &Device, model: &[u8]) -> Result<Vec<u8>, Error> {
    let compiler = ModelCompiler::new(builder(device)?).and_then(ModelCompiler::with_embed_ep_context);
    let compiler = compiler.and_then(|compiler| compiler.with_model_from_memory(model));
    let compiled = compiler.and_then(|compiler| compiler.compile_to_buffer());
    Ok(compiled.map_err(|error| refused("CompileModel", error))?.to_vec())
}

/// Takes a model up that was compiled, or compiles one that was not.
pub(crate) fn open(device: &Device, model: &[u8]) -> Result<Session, Error> {
    builder(device)?.commit_from_memory(model).map_err(|error| refused("CreateSession", error))
}

fn builder(device: &Device) -> Result<SessionBuilder, Error> {
    let runtime = device.runtime();
    let builder = Session::builder(runtime.environment()).map_err(|error| refused("CreateSessionOptions", error))?;
    let builder = builder.with_log_level(LogLevel::Fatal).map_err(|error| refused("SetSessionLogLevel", error))?;
    // The HTP computes; there is nothing to divide among threads of the CPU.
    let builder = builder.with_intra_threads(1).map_err(|error| refused("SetIntraOpNumThreads", error))?;
    runtime.provider().on_htp(runtime.environment(), builder, device.generation())
}
