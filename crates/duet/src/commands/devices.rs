//! `duet devices`: what this machine can run models on, for people or as one JSON object.

use crate::cli::{DevicesArgs, DraftArgs};
use crate::devices::{DeviceReport, Lanes, MissingRuntime, Overview, SelfTestReport, ShapesReport};
#[cfg(feature = "gpu")]
use crate::devices::{GpuReport, Gpus, KeysAndValues, Use};
use crate::failure::print;
use crate::terminal::plain;
use crate::{lanes, session};
use duet_types::Bytes;

pub(super) fn devices(arguments: &DevicesArgs) -> anyhow::Result<()> {
    if arguments.lanes {
        let engine =
            session::start(&arguments.model, &arguments.engine, (&arguments.device, &DraftArgs::default()), None)?;
        return print(&if arguments.json { lanes::json(&engine)? } else { lanes::page(&engine) });
    }
    let overview = Overview::look()?;
    if arguments.json {
        return print(&(serde_json::to_string(&overview)? + "\n"));
    }
    print(&page(&overview))
}

fn page(overview: &Overview) -> String {
    let mut page = format!("duet {}\n{}", env!("CARGO_PKG_VERSION"), cores(&overview.lanes));
    #[cfg(feature = "gpu")]
    {
        page += &gpus(&overview.gpus);
    }
    for runtime in &overview.runtimes {
        let (version, path) = (plain(&runtime.version), plain(&runtime.path.to_string_lossy()));
        page += &format!("{} {version} ({path})\n", runtime.name);
        runtime.devices.iter().for_each(|found| page += &device(found));
    }
    overview.missing.iter().for_each(|runtime| page += &missing(runtime));
    page
}

fn cores(lanes: &Lanes) -> String {
    let mut facts: Vec<_> = lanes.full_name.iter().map(|name| plain(name)).collect();
    facts.push(format!("{} {}", lanes.cores, if lanes.cores == 1 { "core" } else { "cores" }));
    facts.push(lanes.isa.clone());
    facts.extend(lanes.memory_bytes.map(|bytes| Bytes(bytes).to_string()));
    let measured = format!("measured now: {:.0} GMAC/s int8, {:.1} GB/s", lanes.int8_gmacs, lanes.read_gbs);
    entry("cpu", &facts, &[shapes(lanes.shapes).to_owned(), measured])
}

#[cfg(feature = "gpu")]
fn gpus(found: &Gpus) -> String {
    let none = found.none.iter().map(|why| format!("gpu: {why}\n"));
    found.adapters.iter().map(gpu).chain(none).collect()
}

#[cfg(feature = "gpu")]
fn gpu(gpu: &GpuReport) -> String {
    let facts = [&gpu.full_name, &gpu.driver, &gpu.kind, &gpu.interface].map(|fact| plain(fact));
    let mut does = vec![match &gpu.used {
        Use::Yes => "any shape".to_owned(),
        Use::ByName => {
            format!("any shape; used only as `--device {}`, since it takes the cores' time", plain(&gpu.name))
        }
        Use::No(why) => format!("not used: {}", plain(why)),
    }];
    does.extend(gpu.self_test.as_ref().map(self_test));
    does.extend(gpu.keys_and_values.as_ref().map(|found| match found {
        KeysAndValues::InPlace => "keys and values stay where they are".to_owned(),
        KeysAndValues::Copied => "keys and values are copied there".to_owned(),
    }));
    entry(&plain(&gpu.name), &facts, &does)
}

fn device(device: &DeviceReport) -> String {
    let mut facts = vec![device.full_name.as_deref().map_or_else(|| device.kind.clone(), plain)];
    facts.extend(device.memory_bytes.map(|bytes| Bytes(bytes).to_string()));
    facts.extend(device.driver.as_deref().map(|driver| format!("driver {}", plain(driver))));
    facts.extend(device.peaks.iter().map(|peak| format!("{:.0} GOP/s {}", peak.gops, plain(&peak.format))));
    entry(&plain(&device.name), &facts, &[shapes(device.shapes).to_owned(), self_test(&device.self_test)])
}

/// Two lines: what it is, and what it does.
fn entry(name: &str, is: &[String], does: &[String]) -> String {
    format!("  {name:<6} {}\n  {:<6} {}\n", is.join(", "), "", does.join("; "))
}

fn shapes(shapes: ShapesReport) -> &'static str {
    match shapes {
        ShapesReport::Dynamic => "any shape",
        ShapesReport::Static => "static shapes only",
    }
}

fn self_test(report: &SelfTestReport) -> String {
    match report {
        SelfTestReport::Passed { compile_ms, inference_us, off_percent } => {
            let took = format!("compiled in {compile_ms:.0} ms, ran in {inference_us:.0} us");
            format!("self-test passed: a small block {took}, {off_percent:.3} % off")
        }
        SelfTestReport::Failed(why) => format!("self-test FAILED: {}", plain(why)),
    }
}

fn missing(runtime: &MissingRuntime) -> String {
    let mut text = format!("{}: {}\n  to get it: {}\n", runtime.name, plain(&runtime.why), runtime.install);
    text += "  or, apart from other packages: add `--target FOLDER`, and set DUET_RT=FOLDER\n";
    for place in &runtime.looked {
        text += &format!("  looked in {}\n", plain(place));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::devices::PeakReport;

    fn npu(self_test: SelfTestReport) -> DeviceReport {
        DeviceReport {
            name: "NPU".to_owned(),
            kind: "NPU".to_owned(),
            full_name: Some("Intel(R) AI Boost\u{1b}[2J".to_owned()),
            driver: Some("1.17".to_owned()),
            memory_bytes: Some(16 << 30),
            peaks: vec![PeakReport { format: "i8".to_owned(), gops: 11_000.0 }],
            shapes: ShapesReport::Static,
            settings: "NUM_STREAMS=1".to_owned(),
            self_test,
        }
    }

    #[test]
    fn a_device_is_two_lines() {
        let shown = device(&npu(SelfTestReport::Passed { compile_ms: 61.7, inference_us: 93.4, off_percent: 0.041 }));
        assert_eq!(
            shown,
            "  NPU    Intel(R) AI Boost\u{fffd}[2J, 16.0 GiB, driver 1.17, 11000 GOP/s i8\n\
             \x20        static shapes only; self-test passed: a small block compiled in 62 ms, ran in 93 us, 0.041 % off\n"
        );
        let failed = device(&npu(SelfTestReport::Failed("no compiler".to_owned())));
        assert!(failed.ends_with("; self-test FAILED: no compiler\n"), "{failed}");
    }
}
