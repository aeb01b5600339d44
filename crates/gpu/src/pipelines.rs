//! Pipelines: shaders with their constants, as they were compiled.

use crate::fusing::Fusing;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

/// A compiled shader.
#[derive(Debug)]
pub(crate) struct Pipeline {
    /// Its shader, with the constants that tell one matrix from another.
    pub(crate) name: String,
    pub(crate) pipeline: wgpu::ComputePipeline,
    pub(crate) layout: wgpu::BindGroupLayout,
}

/// Values of a shader's constants, by their names.
pub(crate) type Constants<'a> = &'a [(&'static str, u32)];

/// What was compiled.
#[derive(Debug, Default)]
pub(crate) struct Pipelines {
    compiled: Mutex<HashMap<Key, Arc<Pipeline>>>,
}

/// What tells one from another.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Key {
    pub(crate) fusing: Fusing,
    pub(crate) shader: &'static str,
    pub(crate) rows: u32,
    pub(crate) constants: Vec<(&'static str, u32)>,
}

impl Pipelines {
    /// One that was compiled before, or else that which `compile` makes.
    ///
    /// # Errors
    /// What `compile` fails with.
    pub(crate) fn find_or<E>(
        &self,
        key: Key,
        compile: impl FnOnce() -> Result<Pipeline, E>,
    ) -> Result<Arc<Pipeline>, E> {
        let mut compiled = self.compiled.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(pipeline) = compiled.get(&key) {
            return Ok(Arc::clone(pipeline));
        }
        let pipeline = Arc::new(compile()?);
        compiled.insert(key, Arc::clone(&pipeline));
        Ok(pipeline)
    }
}
