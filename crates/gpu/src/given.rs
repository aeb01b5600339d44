//! What a pass gives a GPU beside weights, brought there together: each time that something is written has a price of its own.

use crate::gpu::Gpu;
use crate::recording::Recording;

/// Words on their way to the beginnings of some buffers.
#[derive(Debug, Default)]
pub(crate) struct Given {
    words: Vec<u32>,
    parts: Vec<(wgpu::Buffer, usize)>,
    /// Where they arrive, as large as was ever needed.
    arrived: Option<wgpu::Buffer>,
}

impl Given {
    /// Forgets what was not brought.
    pub(crate) fn clear(&mut self) {
        self.words.clear();
        self.parts.clear();
    }

    pub(crate) fn add(&mut self, to: &wgpu::Buffer, words: &[u32]) {
        self.words.extend_from_slice(words);
        self.parts.push((to.clone(), words.len()));
    }

    /// Brings them there, before what is recorded next.
    pub(crate) fn bring(&mut self, gpu: &Gpu, recording: &mut Recording<'_>) {
        let bytes = 4 * self.words.len();
        let arrived = self.arrived.take().filter(|buffer| buffer.size() >= bytes as u64);
        let arrived = arrived.unwrap_or_else(|| gpu.empty("given", bytes.next_power_of_two()));
        gpu.queue.write_buffer(&arrived, 0, bytemuck::cast_slice(&self.words));
        let mut at = 0;
        for (to, words) in &self.parts {
            if *words > 0 {
                recording.copy((&arrived, at), (to, 0), *words);
            }
            at += words;
        }
        self.arrived = Some(arrived);
        self.clear();
    }
}
