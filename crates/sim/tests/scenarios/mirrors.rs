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

/// The GPU has room for 500 positions. B's answer sends away what A left there, and C's prompt B's copy, though B is not done: C is
/// a person's. When C is over, its copy goes, and B's comes back layer by layer.
#[test]
fn what_somebody_left_makes_room_and_then_the_background() {
    check(
        "discrete-gpu
         at 0ms   A  reactive   prompt 200  output 1
         at 20ms  B  proactive  prompt 280  output 12
         at 40ms  C  reactive   prompt 300  output 2",
        expect![[r#"
            0.00                 arrive   A reactive
            0.00      gpu        prefill  A[0..100]                      4.20  reactive first
            4.20      gpu        prefill  A[100..200]                    4.40  reactive first
            8.60                 end      A stop
            20.00                arrive   B proactive
            20.00     gpu        prefill  B[0..100] n0..2                1.00  background
            21.00     gpu        prefill  B[0..100] n2..4                1.10  goes on
            22.10     gpu        prefill  B[0..100] n4..6                1.10  goes on
            23.20     gpu        prefill  B[0..100] n6..7                1.00  goes on
            24.20     gpu        prefill  B[100..200] n0..2              1.00  background
            25.20     gpu        prefill  B[100..200] n2..4              1.20  goes on
            26.40     gpu        prefill  B[100..200] n4..6              1.20  goes on
            27.60     gpu        prefill  B[100..200] n6..7              1.00  goes on
            28.60     gpu        prefill  B[200..280] n0..2              0.80  background
            29.40     gpu        prefill  B[200..280] n2..5              1.88  goes on
            31.28     gpu        prefill  B[200..280] n5..7              1.08  goes on
            32.36                drop     copy of A on gpu
            32.36     gpu        decode   B[280] n0..5                   1.78  background
            34.14     gpu        decode   B[280] n5..7                   0.78  goes on
            34.92     gpu        decode   B[281] n0..5                   1.78  background
            36.70     gpu        decode   B[281] n5..7                   0.78  goes on
            37.49     gpu        decode   B[282] n0..5                   1.78  background
            39.27     gpu        decode   B[282] n5..7                   0.78  goes on
            40.00                arrive   C reactive
            40.05     gpu        prefill  C[0..100]                      4.20  reactive first
            44.25                drop     copy of B on gpu
            44.25     gpu        prefill  C[100..200]                    4.40  reactive first
            48.65     gpu        prefill  C[200..300]                    4.60  reactive first
            53.25     gpu        decode   C[300]                         2.60  side by side
            53.25     cpu        decode   B[283] n0..3                   1.57  side by side
            54.82     cpu        decode   B[283] n3..5                   2.00  side by side
            55.85                end      C stop
            56.82                drop     copy of C on gpu
            56.82     gpu        decode   B[283] n5..7                   2.20  goes on
            59.02     gpu        decode   B[284] n0..5                   3.21  background
            62.22     gpu        decode   B[284] n5..7                   2.21  goes on
            63.01     gpu        decode   B[285] n0..5                   1.74  background
            64.80     gpu        decode   B[285] n5..7                   0.77  goes on
            65.58     gpu        decode   B[286] n0..5                   1.75  background
            67.37     gpu        decode   B[286] n5..7                   0.77  goes on
            68.15     gpu        decode   B[287] n0..5                   1.75  background
            69.94     gpu        decode   B[287] n5..7                   0.77  goes on
            70.73     gpu        decode   B[288] n0..5                   1.76  background
            72.52     gpu        decode   B[288] n5..7                   0.78  goes on
            73.31     gpu        decode   B[289] n0..5                   1.76  background
            75.10     gpu        decode   B[289] n5..7                   0.78  goes on
            75.89     gpu        decode   B[290] n0..5                   1.76  background
            77.68     gpu        decode   B[290] n5..7                   0.78  goes on
            78.47                end      B stop
        "#]],
    );
}

/// B goes on with what A left, on the GPU as in memory: its kernel waits for nothing.
#[test]
fn a_turn_finds_what_the_one_before_left() {
    check(
        "discrete-gpu
         at 0ms   A  reactive  prompt 200  output 2
         at 40ms  B  reactive  prompt 220  output 2  continues A",
        expect![[r#"
            0.00                 arrive   A reactive
            0.00      gpu        prefill  A[0..100]                      4.20  reactive first
            4.20      gpu        prefill  A[100..200]                    4.40  reactive first
            8.60      gpu        decode   A[200]                         2.40  side by side
            11.00                end      A stop
            40.00                arrive   B reactive
            40.00                cached   B[0..201] all of A
            40.00     gpu        prefill  B[201..220]                    2.44  reactive first
            42.44     gpu        decode   B[220]                         2.44  side by side
            44.88                end      B stop
        "#]],
    );
}
