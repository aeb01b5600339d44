//! `duet bench agreement`: how near a device comes to the CPU's own kernels.

use crate::bad_input::BadInput;
use crate::cli::AgreementArgs;
use crate::failure::print;
use crate::progress::eprintln_quiet;
use crate::{offloading, session};
use duet_bench::agreement::{self, Agreement, Devices, Exact, Settings};
use duet_openvino::Activations;

pub(super) fn agreement(arguments: &AgreementArgs) -> anyhow::Result<()> {
    let model = session::open_with(&arguments.model, arguments.threads)?;
    let compiled =
        |activations| offloading::compiled(&model, &arguments.device, (arguments.threads, None), activations);
    let (device, exact) = (compiled(Activations::ROUNDED)?, compiled(Activations::Floats)?);
    let settings = Settings {
        files: arguments.workload.clone(),
        limit: arguments.limit,
        output: arguments.max_tokens,
        threads: arguments.threads.map_or_else(|| duet_device::available_cores().len(), usize::from),
    };
    let progress = |what: &str| eprintln_quiet(&format!("bench: {what}"));
    let devices = Devices { device: &*device, exact: &*exact };
    let measured =
        agreement::run(&model, devices, &settings, &progress).map_err(|error| match error.is_bad_input() {
            true => BadInput(error.to_string()).into(),
            false => anyhow::Error::new(error),
        })?;
    let device = arguments.device.to_string();
    if arguments.json {
        let mut object = serde_json::to_value(&measured)?;
        object["device"] = device.into();
        return print(&format!("{object}\n"));
    }
    print(&page(&device, &measured))
}

fn page(device: &str, measured: &Agreement) -> String {
    let Agreement { prompts, positions, top1_pct, perplexity_native, perplexity_device, greedy_same, ref exact } =
        *measured;
    let Exact { top1_native_pct, top1_device_pct, perplexity } = *exact;
    let off = |found: f64| 100.0 * (found / perplexity - 1.0);
    format!(
        "{device} beside the CPU's kernels, {prompts} prompts with their answers, {positions} positions\n\
         the likeliest token is the same at {top1_pct:.2} %\n\
         perplexity {perplexity_native:.3} (CPU), {perplexity_device:.3} (device): {:+.2} %\n\
         {greedy_same} of {prompts} greedy answers are the same to the token\n\
         without rounding activations: perplexity {perplexity:.3} (CPU {:+.2} %, device {:+.2} %), \
         the likeliest token the CPU's at {top1_native_pct:.2} %, the device's at {top1_device_pct:.2} %\n",
        100.0 * (perplexity_device / perplexity_native - 1.0),
        off(perplexity_native),
        off(perplexity_device),
    )
}
