//! The scheduler in a small virtual world: timelines of chosen scenarios, properties of random ones.

mod fake_world;
mod properties;
mod timeline;
