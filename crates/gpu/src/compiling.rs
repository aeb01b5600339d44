//! Compiles a shader with its constants, once for each.

use crate::adapters::IMMEDIATE_BYTES;
use crate::error::GpuError;
use crate::gpu::Gpu;
use crate::pipelines::{Constants, Key, Pipeline};
use crate::shader::{Access, Shader};
use std::sync::Arc;

impl Gpu {
    /// A shader for so many rows in a thread, with these constants.
    ///
    /// # Errors
    /// If the driver does not compile it.
    pub(crate) fn pipeline(
        &self,
        shader: &Shader,
        rows: u32,
        constants: Constants<'_>,
    ) -> Result<Arc<Pipeline>, GpuError> {
        let key = Key { fusing: self.fusing, shader: shader.name, rows, constants: constants.to_vec() };
        self.pipelines.find_or(key, || {
            let pipeline = self.compile(shader, rows, constants);
            self.check().map(|()| pipeline)
        })
    }

    fn compile(&self, shader: &Shader, rows: u32, constants: Constants<'_>) -> Pipeline {
        let label = Some(shader.name);
        let before = [self.fusing.source(), include_str!("shaders/arithmetic.wgsl")].join("\n");
        let source = format!("const ROWS: u32 = {rows}u;\n{before}\n{}", shader.source.join("\n"));
        let module = wgpu::ShaderModuleDescriptor { label, source: wgpu::ShaderSource::Wgsl(source.into()) };
        let checks = wgpu::ShaderRuntimeChecks { force_loop_bounding: false, ..wgpu::ShaderRuntimeChecks::checked() };
        // SAFETY: accesses to memory stay checked. Every loop of the shaders in `shaders/` goes on to a constant, or to a
        // number that the launch is told or that lies in a buffer, by steps of at least one, and nothing in it changes the count:
        // all of them end.
        let module = unsafe { self.device.create_shader_module_trusted(module, checks) };
        let entries: Vec<_> = (0..).zip(shader.bindings).map(|(binding, &access)| entry(binding, access)).collect();
        let layout =
            self.device.create_bind_group_layout(&wgpu::BindGroupLayoutDescriptor { label, entries: &entries });
        let whole = self.device.create_pipeline_layout(&wgpu::PipelineLayoutDescriptor {
            label,
            bind_group_layouts: &[Some(&layout)],
            immediate_size: IMMEDIATE_BYTES,
        });
        let name = named(shader, rows, constants);
        let constants: Vec<_> = constants.iter().map(|&(name, value)| (name, f64::from(value))).collect();
        let pipeline = self.device.create_compute_pipeline(&wgpu::ComputePipelineDescriptor {
            label,
            layout: Some(&whole),
            module: &module,
            entry_point: Some("main"),
            compilation_options: wgpu::PipelineCompilationOptions {
                constants: &constants,
                zero_initialize_workgroup_memory: false,
            },
            cache: None,
        });
        Pipeline { name, pipeline, layout }
    }
}

/// What a launch is called.
fn named(shader: &Shader, rows: u32, constants: Constants<'_>) -> String {
    let of = |wanted: &str| {
        constants.iter().find(|(name, _)| *name == wanted).map(|(name, value)| format!(" {name} {value}"))
    };
    let told: String = ["BITS", "GROUPS", "STRIDE", "EPILOGUE", "COLUMNS"].into_iter().filter_map(of).collect();
    format!("{} ROWS {rows}{told}", shader.name)
}

fn entry(binding: u32, access: Access) -> wgpu::BindGroupLayoutEntry {
    let kind = wgpu::BufferBindingType::Storage { read_only: access == Access::Read };
    wgpu::BindGroupLayoutEntry {
        binding,
        visibility: wgpu::ShaderStages::COMPUTE,
        ty: wgpu::BindingType::Buffer { ty: kind, has_dynamic_offset: false, min_binding_size: None },
        count: None,
    }
}
