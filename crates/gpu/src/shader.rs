//! The shaders: a file of WGSL each, what it binds, and how it is made into a pipeline.
//!
//! What differs from one use to another are constants of the pipeline. Only how many rows a thread has is a line before the
//! file: it is the length of arrays, which WGSL does not take from such a constant.

/// A file of WGSL with one entry point, `main`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shader {
    /// What it is called in errors and timelines.
    pub(crate) name: &'static str,
    /// Files, one behind the other.
    pub(crate) source: &'static [&'static str],
    /// What it binds, in the order of the bindings.
    pub(crate) bindings: &'static [Access],
}

/// What a shader does with a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    Read,
    Write,
}

use Access::{Read, Write};

macro_rules! shaders {
    ($($(#[$doc:meta])* $constant:ident = $name:literal $(behind $before:literal)?, $bindings:expr;)*) => {$(
        $(#[$doc])*
        pub(crate) const $constant: Shader = Shader {
            name: $name,
            source: &[
                $(include_str!(concat!("shaders/", $before, ".wgsl")),)?
                include_str!(concat!("shaders/", $name, ".wgsl")),
            ],
            bindings: &$bindings,
        };
    )*};
}
shaders! {
    /// Mean and inverse deviation of rows: residual, moments.
    MOMENTS = "moments", [Read, Write];
    /// Rows as signed bytes: values, moments, weight, bias, quants, scales.
    QUANTIZE = "quantize", [Read, Read, Read, Read, Write, Write];
    /// Products with packed weights: out, bias, quants, scales, rows as bytes, rows as floats, their scales.
    PRODUCT = "product" behind "epilogue", [Write, Read, Read, Read, Read, Read, Read];
    /// Products with floats: out, bias, weights, rows.
    PRODUCT_FLOATS = "product_floats" behind "epilogue", [Write, Read, Read, Read];
    /// What is behind the projection: qkv, cosines, sines, query norm, key norm, slots, pages, keys and values.
    HEADS = "heads", [Write, Read, Read, Read, Read, Read, Write, Write];
    /// Attention: qkv, rows, places, pages, attended.
    ATTENTION = "attention", [Read, Read, Read, Read, Write];
    /// Normed rows onto others: values, moments, weight, out.
    ADD_NORMED = "add_normed", [Read, Read, Read, Write];
}
