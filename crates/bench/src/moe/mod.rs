//! `duet bench moe`: experts on devices that take static shapes. (NPUMoE §5)

pub mod accuracy;
