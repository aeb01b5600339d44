//! EAGLE-2, simulated: no such head was trained for the model. (CoordGen §4.1, baselines 5 and 6)
//!
//! As the paper has it: the drafter is one transformer layer and the head, and five and a half tokens are accepted each
//! time. A verify pass is taken to cost what a plain one does, which flatters it: its tree is not free.

use super::answer::Answer;
use super::line::Line;
use duet_model::Model;

/// Tokens of a verify pass. (CoordGen §4.1)
const ACCEPT_LEN: f64 = 5.5;

/// The figures, from plain decode's.
pub(super) fn line(model: &Model, workload: &str, plain: &[Answer]) -> Line {
    let (time, decoded) =
        plain.iter().fold((0.0, 0.0), |(time, decoded), a| (time + a.decode_s(), decoded + a.decoded() as f64));
    let pass = time / decoded;
    let drafts = ACCEPT_LEN.ceil();
    let step = pass * (1.0 + drafts * drafter_share(model));
    let ms_per_token = step / ACCEPT_LEN * 1e3;
    let total: f64 = plain.iter().map(|answer| answer.usage.total.as_secs_f64()).sum();
    Line {
        workload: workload.to_owned(),
        method: "eagle-sim".to_owned(),
        history: None,
        n: plain.len(),
        accept_len: ACCEPT_LEN,
        rows: None,
        ms_per_token,
        speedup: pass * 1e3 / ms_per_token,
        speedup_p10_p50_p90: None,
        rarely_accepted_n: 0,
        rarely_accepted_speedup_p50: None,
        request_speedup: total / (total - time + ms_per_token / 1e3 * decoded),
        draft_us_per_step: Some(pass * drafts * drafter_share(model) * 1e6),
        draft_model_ms_per_step: None,
        calibration_us_per_prompt_token: None,
        extra_bytes: Some(drafter_bytes(model)),
        valid: None,
        wasted: None,
        underutilised: None,
        // Its answers are not made.
        identical: None,
        simulated: true,
    }
}

/// A layer and the head, of all that a plain pass reads.
fn drafter_share(model: &Model) -> f64 {
    let work = model.work();
    let layer = (work.qkv.row_bytes() + work.ffn.row_bytes()).0 as f64;
    let head = work.head.bytes.0 as f64;
    (layer + head) / (layer * model.config().layers as f64 + head)
}

/// The head is shared with the model; the layer is its own.
fn drafter_bytes(model: &Model) -> u64 {
    let work = model.work();
    (work.qkv.all_bytes() + work.ffn.all_bytes()).0
}
