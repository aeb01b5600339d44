//! A device that holds some layers: a kernel ends where they begin and where they end.

use crate::check;
use expect_test::expect;

/// Of two layers the cores compute the first, and the iGPU with them the second.
#[test]
fn a_pass_goes_over_where_the_layers_of_a_device_begin() {
    check(
        "half-on-igpu
         at 0ms  A  reactive  prompt 100  output 2",
        expect![[""]],
    );
}

/// A device that is lost holds nothing: the cores compute all.
#[test]
fn without_the_device_the_cores_do_all() {
    check(
        "half-on-igpu
         at 0ms  A  reactive  prompt 100  output 3
         at 3ms  lane 0 is lost",
        expect![[""]],
    );
}

/// The baselines keep to the layers as well.
#[test]
fn batching_on_the_igpu_leaves_the_other_layers_to_the_cores() {
    check(
        "half-on-igpu  policy igpu-batching
         at 0ms  A  reactive  prompt 100  output 2",
        expect![[""]],
    );
}
