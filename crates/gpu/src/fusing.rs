//! How an adapter adds a product to a sum. The CPU's kernels round once; WGSL lets an adapter round both, as Mesa's program for
//! the processor does. Which of them an adapter does is found by a try, when it is opened; one that rounds both computes it in
//! double precision, if it has that, and has the CPU's bits all the same.

/// How `a × b + c` is computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Fusing {
    /// By the adapter's own instruction, which rounds once.
    Once,
    /// In double precision, rounded once.
    Doubles,
    /// Product and sum are rounded both, or quotients and roots are not the nearest: last bits differ from the CPU's.
    Apart,
}

impl Fusing {
    /// The shaders' `fused`.
    pub(crate) fn source(self) -> &'static str {
        match self {
            Self::Once => include_str!("shaders/fused_once.wgsl"),
            Self::Doubles => include_str!("shaders/fused_doubles.wgsl"),
            Self::Apart => include_str!("shaders/fused_apart.wgsl"),
        }
    }

    /// Whether results have the CPU's bits.
    #[must_use]
    pub fn is_exact(self) -> bool {
        self != Self::Apart
    }
}

/// What double precision takes.
pub(crate) const DOUBLES: wgpu::Features = wgpu::Features::SHADER_F64.union(wgpu::Features::SHADER_INT64);
