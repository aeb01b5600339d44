//! A device with memory of its own: what a request got elsewhere is copied before its next attention there.

use crate::check;
use expect_test::expect;

/// A's first 100 rows are read on the cores while the GPU is away. Its next kernel there waits 1 ms for them, in two layers; what
/// follows waits for nothing.
#[test]
fn what_was_read_elsewhere_is_copied_once() {
    check(
        "discrete-gpu
         at 0ms   A  reactive  prompt 120  output 3
         at 0ms   lane 0 is slow until 2ms",
        expect![[r#"
            0.00                 arrive   A reactive
            0.00                 slow     gpu
            0.00      cpu        prefill  A[0..100]                      8.40  reactive first
            2.00                 back     gpu
            8.40      gpu        prefill  A[100..120]                    3.24  reactive first
            11.64     gpu        decode   A[120]                         2.24  side by side
            13.88     gpu        decode   A[121]                         2.24  side by side
            16.13                end      A stop
        "#]],
    );
}

/// A long prompt is read on the cores. The GPU saves 2 ms a token, and copying takes 4: it is taken all the same, since that is
/// won back within a few tokens.
#[test]
fn a_way_that_is_won_back_soon_is_worth_it() {
    check(
        "discrete-gpu  prefill-rows 400  chunk 400
         at 0ms   A  reactive  prompt 400  output 5
         at 0ms   lane 0 is slow until 12ms",
        expect![[r#"
            0.00                 arrive   A reactive
            0.00                 slow     gpu
            0.00      cpu        prefill  A[0..400]                     33.60  reactive first
            12.00                back     gpu
            33.60     gpu        decode   A[400]                         6.80  side by side
            40.40     gpu        decode   A[401]                         2.80  side by side
            43.21     gpu        decode   A[402]                         2.81  side by side
            46.01     gpu        decode   A[403]                         2.81  side by side
            48.82                end      A stop
        "#]],
    );
}
