//! What NPUMoE measured of single blocks, for whoever prints it beside figures of its own.

/// Experts of a group, capacity, milliseconds a token of a whole block of Phi-3.5-MoE on
/// an M2 Ultra's NPU. (NPUMoE §5.7, Table 5)
pub(crate) const TABLE_5: [(u32, u32, f64); 8] = [
    (1, 32, 0.31),
    (4, 32, 0.27),
    (8, 32, 0.26),
    (1, 64, 0.23),
    (4, 64, 0.19),
    (8, 64, 0.18),
    (1, 128, 0.16),
    (8, 96, 0.15),
];
