// `a × b + c`, rounded once by the adapter's own instruction: a try has shown that it does.

fn fused(a: f32, b: f32, c: f32) -> f32 {
    return fma(a, b, c);
}
