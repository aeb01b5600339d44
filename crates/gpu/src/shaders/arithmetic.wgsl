// Arithmetic with the CPU's bits: WGSL lets an adapter divide, take roots and raise to powers less exactly than the CPU does,
// and a compiler fuse a product and a sum that the CPU rounds apart. (Behind one of `fused_*.wgsl`.)

/// Zero, which no compiler knows: each entry point sets it from the workgroup's third coordinate.
var<private> nothing: u32;

// A result that is not fused with what is done with it.
fn rounded(x: f32) -> f32 {
    return bitcast<f32>(bitcast<u32>(x) ^ nothing);
}

// What sums of products begin with. To a compiler `fma` is a product and a sum: where the sum begins with a zero that it knows, it
// takes `fma(c, d, fma(a, b, 0))` for `a × b + c × d`, and fuses whichever product it likes. For the same reason the last argument
// of `fused` is never a product, unless that is `rounded`.
fn zero() -> f32 {
    return bitcast<f32>(nothing);
}

// The nearest quotient: what is left of a near one says how far it is off. Compilers must not know that it is one, or they
// make one quotient of the sum of both.
fn divided(a: f32, b: f32) -> f32 {
    let near = rounded(a / b);
    let left = rounded(fused(-near, b, a));
    return near + left / b;
}

// The nearest root.
fn root(x: f32) -> f32 {
    let near = rounded(sqrt(x));
    let left = rounded(fused(-near, near, x));
    return select(near + left / (near + near), 0.0, near == 0.0);
}

// Two to an integral power, between -126 and 127; zero for -127.
fn power(n: f32) -> f32 {
    return bitcast<f32>(u32(i32(n) + 127) << 23u);
}

// e to a power (`kernels/src/simd`, step by step).
fn exponential(x: f32) -> f32 {
    let clamped = min(max(x, -87.3), 88.0);
    let n = round(clamped * 1.442695040888963407);
    var r = fused(n, -0.6933594, clamped);
    r = fused(n, 2.1219444e-4, r);
    var p = 1.9875692e-4;
    p = fused(p, r, 1.3981999e-3);
    p = fused(p, r, 8.333452e-3);
    p = fused(p, r, 4.1665796e-2);
    p = fused(p, r, 1.6666665e-1);
    p = fused(p, r, 0.5);
    p = fused(r * r, p, r + 1.0);
    return select(p * power(n), 0.0, x < -87.3);
}

// Two to a power that is not above zero, and zero from -127 down (the same).
fn power_below(x: f32) -> f32 {
    let clamped = max(x, -127.0);
    let n = round(clamped);
    let r = clamped - n;
    var p = 1.3264725e-3;
    p = fused(p, r, 9.671513e-3);
    p = fused(p, r, 5.5507336e-2);
    p = fused(p, r, 0.24022242);
    p = fused(p, r, 0.693147);
    p = fused(p, r, 1.0);
    return p * power(n);
}

// The scale of a group that is rounded to signed bytes, and its inverse, by the bits of the largest magnitude in it: no number
// where a value is none.
fn byte_scale(largest: u32) -> vec2<f32> {
    if (largest >= 0x7f800000u) {
        return vec2<f32>(bitcast<f32>(largest | 0x7fc00000u), 0.0);
    }
    if (largest > 0u) {
        let greatest = bitcast<f32>(largest);
        let inverse = divided(127.0, greatest);
        if (bitcast<u32>(inverse) < 0x7f800000u) {
            return vec2<f32>(divided(greatest, 127.0), inverse);
        }
    }
    return vec2<f32>();
}
