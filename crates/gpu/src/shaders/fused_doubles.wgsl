// `a × b + c`, rounded once, on an adapter whose own `fma` rounds twice: in double precision, where the product is exact.
//
// The sum is not, and a sum that is rounded to a double first may be rounded to the wrong float then: where it lands between
// two. It is therefore rounded to odd (Boldo and Melquiond, Emulation of FMA and correctly rounded sums, 2008): where something
// was lost, which the differences tell exactly (Knuth's sum of two), the last bit is made one, and no double between two
// floats is odd. What comes through `opaque` no compiler can simplify as if numbers had no rounding.

fn opaque(x: f64) -> f64 {
    return bitcast<f64>(bitcast<u64>(x) ^ u64(nothing));
}

fn fused(a: f32, b: f32, c: f32) -> f32 {
    let product = f64(a) * f64(b);
    let addend = f64(c);
    let sum = opaque(product + addend);
    let taken = opaque(sum - product);
    let lost = (product - opaque(sum - taken)) + (addend - taken);
    let inexact = lost != 0.0lf;
    // What lies beyond the exact sum goes back by one, so that the last bit's one lies between.
    let beyond = inexact && ((lost < 0.0lf) != (sum < 0.0lf));
    let bits = (bitcast<u64>(sum) - select(0lu, 1lu, beyond)) | select(0lu, 1lu, inexact);
    return f32(bitcast<f64>(bits));
}
