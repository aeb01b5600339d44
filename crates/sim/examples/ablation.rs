//! Prints what each mechanism is worth in virtual time: `cargo run --release -p duet-sim --example ablation`. Times in ms.

fn main() {
    for table in duet_sim::ablation::standard() {
        println!("{table}");
    }
}
