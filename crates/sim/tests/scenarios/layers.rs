//! A device that holds some layers: a kernel ends where they begin and where they end.

use crate::check;
use expect_test::expect;

/// Of two layers the cores compute the first, and the iGPU with them the second.
#[test]
fn a_pass_goes_over_where_the_layers_of_a_device_begin() {
    check(
        "half-on-igpu
         at 0ms  A  reactive  prompt 100  output 2",
        expect![[r#"
            0.00                 arrive   A reactive
            0.00      cpu        prefill  A[0..100] n0..4                4.20  reactive first
            4.20      igpu+cpu   prefill  A[0..100] n4..7                1.43  goes on
            5.63      cpu        decode   A[100] n0..4                   2.20  reactive first
            7.84      igpu       decode   A[100] n4..7                   1.10  goes on
            8.94                 end      A stop
        "#]],
    );
}

/// A device that is lost holds nothing: the cores compute all.
#[test]
fn without_the_device_the_cores_do_all() {
    check(
        "half-on-igpu
         at 0ms  A  reactive  prompt 100  output 3
         at 3ms  lane 0 is lost",
        expect![[r#"
            0.00                 arrive   A reactive
            0.00      cpu        prefill  A[0..100] n0..4                4.20  reactive first
            3.00                 lost     igpu
            3.00                 wait     until 1003.00                        probe of a lost lane
            4.20      cpu        prefill  A[0..100] n4..7                4.20  goes on
            8.40      cpu        decode   A[100] n0..4                   2.20  reactive first
            10.60     cpu        decode   A[100] n4..7                   2.20  goes on
            12.80     cpu        decode   A[101] n0..4                   2.20  reactive first
            15.01     cpu        decode   A[101] n4..7                   2.20  goes on
            17.21                end      A stop
            1003.00              probe    igpu
        "#]],
    );
}

/// The baselines keep to the layers as well.
#[test]
fn batching_on_the_igpu_leaves_the_other_layers_to_the_cores() {
    check(
        "half-on-igpu  policy igpu-batching
         at 0ms  A  reactive  prompt 100  output 2",
        expect![[r#"
            0.00                 arrive   A reactive
            0.00      cpu        prefill  A[0..100] n0..4                4.20  first come
            4.20      igpu       prefill  A[0..100] n4..7                2.10  goes on
            6.30      cpu        decode   A[100] n0..4                   2.20  first come
            8.50      igpu       decode   A[100] n4..7                   1.10  goes on
            9.60                 end      A stop
        "#]],
    );
}
