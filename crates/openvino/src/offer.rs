//! What a device takes of the options that are wanted.
//!
//! Plugins throw when they are told what they do not know, and each knows other properties: an NPU's has neither threads
//! nor groups of activations, and computes in halves. A plugin lists its properties (`SUPPORTED_PROPERTIES`) and what it
//! computes in (`OPTIMIZATION_CAPABILITIES`). By way of C the list does not say which of them can be written, so each that
//! is wanted is told to a core of its own first: what the plugin throws at is left out as well, with its words.
//!
//! Invariant: what is taken is listed by the device, and was accepted by it.

use crate::compile::configure;
use crate::options::{CompileOptions, Precision};
use crate::runtime::{Runtime, core};
use crate::text::c_text;

/// What a device says of its properties.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Offer {
    properties: Vec<String>,
    /// Finest first.
    precisions: Vec<Precision>,
}

/// An option that is not told to a device, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeftOut {
    /// As it would have been told: `INFERENCE_NUM_THREADS=2`.
    pub option: String,
    /// Why not.
    pub why: String,
}

impl Offer {
    /// Asks a device; nothing is offered by one that does not answer.
    pub(crate) fn of(property: &dyn Fn(&str) -> Option<String>) -> Self {
        let words = |key: &str| property(key).unwrap_or_default();
        let properties = words("SUPPORTED_PROPERTIES").split_whitespace().map(str::to_owned).collect();
        let capabilities = words("OPTIMIZATION_CAPABILITIES");
        let capabilities: Vec<_> = capabilities.split_whitespace().collect();
        let precisions = [(Precision::F32, "FP32"), (Precision::F16, "FP16"), (Precision::Bf16, "BF16")];
        let offered = precisions.into_iter().filter(|(_, name)| capabilities.contains(name));
        Self { properties, precisions: offered.map(|(precision, _)| precision).collect() }
    }

    /// `wanted` as far as it is listed, computed in what is offered: single precision where that is wanted and there, else
    /// half. `refusal` is what the device throws at when it is told an option that it lists, if it does.
    pub(crate) fn taken(
        &self,
        wanted: CompileOptions,
        refusal: &dyn Fn(&CompileOptions) -> Option<String>,
    ) -> (CompileOptions, Vec<LeftOut>) {
        let precision = wanted.precision.map(|precision| self.nearest(precision));
        let (mut taken, mut left_out) = (CompileOptions::default(), Vec::new());
        for one in (CompileOptions { precision, ..wanted }).one_by_one() {
            let why = if one.properties().iter().all(|(key, _)| self.properties.iter().any(|known| known == key)) {
                refusal(&one)
            } else {
                Some("the device does not list it".to_owned())
            };
            match why {
                None => taken = taken.and(one),
                Some(why) => left_out.push(LeftOut { option: one.to_string(), why }),
            }
        }
        // It is not among a plugin's public properties.
        taken.npu_front_end = wanted.npu_front_end;
        (taken, left_out)
    }

    fn nearest(&self, wanted: Precision) -> Precision {
        let half = [wanted, Precision::F16].into_iter().find(|precision| self.precisions.contains(precision));
        half.unwrap_or(wanted)
    }

    /// What a device computes in that was told `told`: if nothing, the coarsest that it offers, which is what devices
    /// choose for speed.
    pub(crate) fn computes_in(&self, told: Option<Precision>) -> Precision {
        told.or(self.precisions.last().copied()).unwrap_or(Precision::F32)
    }
}

/// Whether a device takes an option that it lists: its words if it throws.
pub(crate) fn refusal(runtime: &Runtime, device: &str, option: &CompileOptions) -> Option<String> {
    let tried = c_text("a device's name", device).and_then(|name| {
        let core = core(runtime.library())?;
        configure(&core, &name, option)?;
        // A core keeps what it is told for plugins that it has not loaded; a question loads them.
        runtime.property_of(&core, device, "SUPPORTED_PROPERTIES")
    });
    tried.err().map(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::Activations;

    fn offer(properties: &str, capabilities: &str) -> Offer {
        Offer::of(&|key| match key {
            "SUPPORTED_PROPERTIES" => Some(properties.to_owned()),
            "OPTIMIZATION_CAPABILITIES" => Some(capabilities.to_owned()),
            _ => None,
        })
    }

    fn taken(offer: &Offer) -> (String, Vec<String>) {
        let (taken, left_out) = offer.taken(CompileOptions::of_blocks(2, Activations::ROUNDED), &|_| None);
        (taken.to_string(), left_out.into_iter().map(|left| left.option).collect())
    }

    /// As Intel's NPU plugin 2026.4 lists them, with the driver's compiler and without.
    #[test]
    fn an_npu_is_told_what_it_knows_and_computes_in_halves() {
        let halves =
            offer("DEVICE_ID NUM_STREAMS INFERENCE_PRECISION_HINT PERFORMANCE_HINT", "FP16 INT8 EXPORT_IMPORT");
        let (told, left_out) = taken(&halves);
        assert_eq!(told, "INFERENCE_PRECISION_HINT=f16 NUM_STREAMS=1");
        assert_eq!(left_out, ["INFERENCE_NUM_THREADS=2", "DYNAMIC_QUANTIZATION_GROUP_SIZE=32"]);
        let without = offer("DEVICE_ID NUM_STREAMS", "FP16 INT8 EXPORT_IMPORT");
        assert_eq!(taken(&without).0, "NUM_STREAMS=1");
        assert_eq!(without.computes_in(None), Precision::F16);
    }

    #[test]
    fn single_precision_is_used_where_it_is_offered() {
        let gpu = offer("INFERENCE_PRECISION_HINT DYNAMIC_QUANTIZATION_GROUP_SIZE NUM_STREAMS", "FP32 BIN FP16 INT8");
        let told = "DYNAMIC_QUANTIZATION_GROUP_SIZE=32 INFERENCE_PRECISION_HINT=f32 NUM_STREAMS=1";
        assert_eq!(taken(&gpu), (told.to_owned(), vec!["INFERENCE_NUM_THREADS=2".to_owned()]));
        assert_eq!(gpu.computes_in(Some(Precision::F32)), Precision::F32);
    }

    #[test]
    fn what_is_listed_and_thrown_at_is_left_out_with_its_reason() {
        let read_only = |one: &CompileOptions| one.streams.map(|_| "NUM_STREAMS is read-only".to_owned());
        let all = offer("NUM_STREAMS INFERENCE_NUM_THREADS", "FP32");
        let (taken, left_out) = all.taken(CompileOptions::one_core(), &read_only);
        assert_eq!(taken.to_string(), "INFERENCE_NUM_THREADS=1");
        let why = "NUM_STREAMS is read-only".to_owned();
        assert_eq!(left_out, [LeftOut { option: "NUM_STREAMS=1".to_owned(), why }]);
    }

    #[test]
    fn a_device_that_says_nothing_is_told_nothing() {
        let silent = Offer::of(&|_| None);
        assert_eq!(taken(&silent).0, "");
        assert_eq!(silent.computes_in(None), Precision::F32);
    }
}
