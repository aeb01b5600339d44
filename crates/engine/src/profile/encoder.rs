//! The graph of an encoder, in the anchors that the machine has for the model that answers.
//!
//! Its matrices may be of another kind than those that the machine was measured with (floats, where those are of four bits),
//! and its kernels are others. So a pass is timed at the start, and its work counted as so much that the prediction is right.

use super::ProfileError;
use super::bench::on;
use duet_device::CpuLanes;
use duet_model::Linear;
use duet_model::encoder::{Encoder, Text};
use duet_scheduler::heg::{Load, SequenceWise, TokenWise};

use duet_scheduler::{Heg, Machine, Yields, annotation};
use duet_types::{LaneSet, Net, TokenId, Tokens};
use std::sync::Arc;
use std::time::Instant;

/// What the nodes of `encoder` compute and read, as it was measured on `cores`.
pub(crate) fn encoder_heg(
    encoder: &Arc<Encoder>,
    machine: &Machine,
    lanes: &CpuLanes,
    cores: LaneSet,
) -> Result<Heg, ProfileError> {
    let counted = counted(encoder);
    let rows = ROWS.min(encoder.context().0);
    let load = Load { net: Net::Encoder, ..Load::default() }.with_rows(Tokens::ZERO..Tokens(rows), Yields::Context);
    let predicted = annotation::span_time(&counted, machine.anchors(cores), &load, &(0..counted.nodes())).as_secs_f64();
    let timed = Arc::clone(encoder);
    let measured = on(lanes, cores, move |site| {
        let text = Text::of_tokens(vec![TokenId(1); rows as usize], rows as usize);
        let mut times = Vec::new();
        for _ in 0..TIMES {
            let mut pass =
                timed.begin(Arc::from([text.clone()])).map_err(|error| ProfileError::Pass(error.to_string()))?;
            let begun = Instant::now();
            timed.run(&mut pass, 0..timed.order().count(), 0..rows as usize, site.crew);
            times.push(begun.elapsed().as_secs_f64());
            timed.end(pass);
        }
        Ok::<_, ProfileError>(super::bench::fastest(times))
    })??;
    Ok(scaled(counted, (measured / predicted.max(1e-9)).max(SCALE_MIN)))
}

/// By what the matrices hold.
fn counted(encoder: &Encoder) -> Heg {
    let work = encoder.work();
    let width = (encoder.width() * size_of::<f32>()) as f64;
    let token_wise = |linear: Linear| TokenWise {
        macs_per_row: linear.macs as f64,
        weight_bytes: linear.bytes.0 as f64,
        row_bytes: 4.0 * width,
        routed: None,
    };
    Heg {
        layers: work.layers,
        qkv: token_wise(work.qkv),
        ffn: token_wise(work.ffn),
        attention: SequenceWise {
            macs_per_pair: encoder.attention_macs() as f64,
            bytes_per_position: 2.0 * width,
            row_bytes: 2.0 * width,
            windowed: None,
        },
        head: TokenWise { macs_per_row: 0.0, weight_bytes: 0.0, row_bytes: 0.0, routed: None },
        experts: None,
        for_head: None,
    }
}

/// With so many times the arithmetic.
fn scaled(heg: Heg, by: f64) -> Heg {
    let more = |node: TokenWise| TokenWise { macs_per_row: node.macs_per_row * by, ..node };
    let attention = SequenceWise { macs_per_pair: heg.attention.macs_per_pair * by, ..heg.attention };
    Heg { qkv: more(heg.qkv), ffn: more(heg.ffn), attention, ..heg }
}

/// Rows of the pass that is timed: more than read the weights for little work.
const ROWS: u32 = 64;
/// The first one finds nothing in the caches.
const TIMES: usize = 3;
/// What is faster than that was not measured.
const SCALE_MIN: f64 = 0.01;
