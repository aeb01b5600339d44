//! Tiny models with one thing changed: each is refused when it is loaded, or runs. No file makes the program panic.

mod parts;
mod settings;
mod shapes;
mod unusual;
