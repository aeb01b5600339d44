//! The shaders: a file of WGSL each, what it binds, and how it is made into a pipeline.
//!
//! What differs from one use to another are constants of the pipeline. Only how many rows a thread has is a line before the
//! file: it is the length of arrays, which WGSL does not take from such a constant; and how products are added
//! ([`crate::fusing`]) is one of three files before all of them.

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
    ($($(#[$doc:meta])* $constant:ident = $name:literal $(behind $before:literal)*, $bindings:expr;)*) => {$(
        $(#[$doc])*
        pub(crate) const $constant: Shader = Shader {
            name: $name,
            source: &[
                $(include_str!(concat!("shaders/", $before, ".wgsl")),)*
                include_str!(concat!("shaders/", $name, ".wgsl")),
            ],
            bindings: &$bindings,
        };
    )*};
}
shaders! {
    /// Rows as signed bytes: values, weight, bias, quants, scales.
    QUANTIZE = "quantize" behind "row_moments", [Read, Read, Read, Write, Write];
    /// Products with packed weights: out, bias, quants, scales, rows as bytes, rows as floats, their scales, routes.
    PRODUCT = "product" behind "epilogue" behind "packed" behind "rows_given",
        [Write, Read, Read, Read, Read, Read, Read, Read];
    /// The same, with threads that share out groups.
    PRODUCT_SPLIT = "product_split" behind "epilogue" behind "packed" behind "rows_given",
        [Write, Read, Read, Read, Read, Read, Read, Read];
    /// The same of many rows, with threads that share what they multiply.
    PRODUCT_TILED = "product_tiled" behind "epilogue" behind "packed" behind "rows_given",
        [Write, Read, Read, Read, Read, Read, Read, Read];
    /// The same of a row that each workgroup rounds: out, bias, quants, scales, the row, and four at a time, weight, routes.
    PRODUCT_OF_ROW = "product_split" behind "epilogue" behind "packed" behind "row_moments" behind "rows_rounded",
        [Write, Read, Read, Read, Read, Read, Read, Read];
    /// Products with floats: out, bias, weights, rows, routes.
    PRODUCT_FLOATS = "product_floats" behind "epilogue", [Write, Read, Read, Read, Read];
    /// Scores of experts: normed rows, router, bias, scores.
    SCORES = "scores", [Read, Read, Read, Write];
    /// Experts of each row: scores, bias, chosen, weights.
    CHOOSE = "choose", [Write, Read, Write, Write];
    /// Places by expert: chosen, routes.
    SORT_PLACES = "sort_places", [Read, Write];
    /// What experts made of rows: residual, products, weights, products of the one that all rows go to.
    COMBINE = "combine", [Write, Read, Read, Read];
    /// The best logits of rows: candidates, best.
    BEST = "best", [Read, Write];
    /// Products and sums, for a try: terms, results.
    TRY_FUSED = "try_fused", [Read, Write];
    /// Norms over all heads: qkv, weights.
    WIDTH_NORM = "width_norm", [Write, Read];
    /// What is behind the projection: qkv, angles, norms of queries and keys, slots, pages, keys and values, bias of keys and
    /// its angles by page.
    HEADS = "heads" behind "kv_layout", [Write, Read, Read, Read, Write, Write, Read, Read];
    /// Attention: qkv, rows, places, pages, attended, bias of keys and its angles by page, spans apart.
    ATTENTION = "attention" behind "kv_layout" behind "key_bias" behind "merged_spans",
        [Read, Read, Read, Read, Write, Read, Read, Write];
    /// Normed rows onto others: values, weight, out.
    ADD_NORMED = "add_normed" behind "row_moments", [Read, Read, Write];
}
