//! The instruction sets that kernels are compiled for, one a line, and what this machine lacks for each:
//! `cargo run -p duet-kernels --example isas`.

use duet_kernels::isa::Isa;

fn main() {
    let available = Isa::available();
    for isa in Isa::ALL {
        println!("{isa} {}", if available.contains(&isa) { "here" } else { "not-here" });
    }
}
