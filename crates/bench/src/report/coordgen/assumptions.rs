//! What no profile says: facts on which the papers and other sources contradict each other, or say nothing.
//!
//! None is chosen from a result that is compared. Each is swept over its interval, one at a time.

/// What is assumed of a phone beside its profile.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Assumptions {
    /// How many times as long as a single row the 32 rows of a verify pass take on the NPU; absent: what the annotation
    /// says.
    pub(super) verify_ratio: Option<f64>,
    /// What calibration costs for each token of the prompt, in milliseconds; absent: the products of the head for all rows
    /// of the prompt, as the annotation says.
    pub(super) calibration_ms: Option<f64>,
    /// What drafting costs a step, in milliseconds.
    pub(super) draft_ms: f64,
}

/// One of them, for the page.
pub(super) struct Assumed {
    pub(super) name: &'static str,
    /// As it is taken; in words if it is computed.
    pub(super) value: &'static str,
    pub(super) low: f64,
    pub(super) high: f64,
    pub(super) source: &'static str,
}

pub(super) const VERIFY_RATIO: Assumed = Assumed {
    name: "t(32 rows) / t(1 row) of a verify pass on the NPU",
    value: "annotation",
    low: 1.3,
    high: 3.6,
    source: "contradictory: nearly constant (sd.npu §3.2); 5.7 ms a token at 32 rows against 51.1 ms at one, 3.6 (CoordGen \
             §2.3); 1.3 from Tables 3 and 4. Both ends are shown, neither is used",
};

pub(super) const CALIBRATION_MS: Assumed = Assumed {
    name: "calibration, ms for each token of the prompt",
    value: "annotation",
    low: 0.02,
    high: 2.0,
    source: "2 ms (CoordGen §3.3), which is as long as the whole prefill and yet called negligible; low: a search for the \
             likeliest tokens alone, if the logits are there anyway",
};

pub(super) const DRAFT_MS: Assumed = Assumed {
    name: "drafting, ms a step",
    value: "0.1",
    low: 0.0,
    high: 3.0,
    source: "below 3 ms (CoordGen §4.4); the value is an estimate for a phone: `duet bench speculate` measures it here",
};

impl Assumptions {
    /// As they are taken.
    pub(super) const NOMINAL: Self = Self { verify_ratio: None, calibration_ms: None, draft_ms: 0.1 };
}

/// All of them.
pub(super) const ALL: [&Assumed; 3] = [&VERIFY_RATIO, &CALIBRATION_MS, &DRAFT_MS];
