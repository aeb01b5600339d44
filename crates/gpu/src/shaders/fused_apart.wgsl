// `a × b + c` on an adapter that rounds both, and has no double precision to do otherwise: last bits differ from the CPU's.

fn fused(a: f32, b: f32, c: f32) -> f32 {
    return a * b + c;
}
