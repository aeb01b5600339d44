//! Background decode rides in reactive passes while it is nearly free.

use crate::check;
use expect_test::expect;

/// One row more in a pass that waits for memory costs its attention only.
#[test]
fn nearly_free_rows_ride() {
    check(
        "cpu
         at 0ms  A  proactive  prompt 20  output 6
         at 4ms  B  reactive   prompt 20  output 4",
        expect![[r#"
            0.00                 arrive   A proactive
            0.00      cpu0+cpu1  prefill  A[0..20] n0..3                 0.52  background
            0.52      cpu0+cpu1  prefill  A[0..20] n3..7                 1.52  goes on
            2.04      cpu0+cpu1  decode   A[20] n0..6                    1.54  background
            3.58      cpu0+cpu1  decode   A[20] n6..7                    0.50  goes on
            4.00                 arrive   B reactive
            4.08      cpu0+cpu1  prefill  B[0..20] A[21]                 2.08  reactive first, 1 ride nearly free
            6.17      cpu0+cpu1  decode   B[20] A[22]                    2.09  reactive first, 1 ride nearly free
            8.25      cpu0+cpu1  decode   B[21] A[23]                    2.09  reactive first, 1 ride nearly free
            10.35     cpu0+cpu1  decode   B[22] A[24]                    2.10  reactive first, 1 ride nearly free
            12.44                end      B stop
            12.44                end      A stop
        "#]],
    );
}

/// A waits for B.
#[test]
fn nearly_free_rows_ride_switched_off() {
    check(
        "cpu  without piggyback
         at 0ms  A  proactive  prompt 20  output 6
         at 4ms  B  reactive   prompt 20  output 4",
        expect![[r#"
            0.00                 arrive   A proactive
            0.00      cpu0+cpu1  prefill  A[0..20] n0..3                 0.52  background
            0.52      cpu0+cpu1  prefill  A[0..20] n3..7                 1.52  goes on
            2.04      cpu0+cpu1  decode   A[20] n0..6                    1.54  background
            3.58      cpu0+cpu1  decode   A[20] n6..7                    0.50  goes on
            4.00                 arrive   B reactive
            4.08      cpu0+cpu1  prefill  B[0..20]                       2.04  reactive first
            6.12      cpu0+cpu1  decode   B[20]                          2.04  reactive first
            8.16      cpu0+cpu1  decode   B[21]                          2.04  reactive first
            10.21     cpu0+cpu1  decode   B[22]                          2.05  reactive first
            12.25                end      B stop
            12.25     cpu0+cpu1  decode   A[21] n0..6                    1.54  background
            13.80     cpu0+cpu1  decode   A[21] n6..7                    0.50  goes on
            14.30     cpu0+cpu1  decode   A[22] n0..6                    1.55  background
            15.84     cpu0+cpu1  decode   A[22] n6..7                    0.50  goes on
            16.34     cpu0+cpu1  decode   A[23] n0..6                    1.55  background
            17.89     cpu0+cpu1  decode   A[23] n6..7                    0.50  goes on
            18.39     cpu0+cpu1  decode   A[24] n0..6                    1.55  background
            19.94     cpu0+cpu1  decode   A[24] n6..7                    0.50  goes on
            20.44                end      A stop
        "#]],
    );
}

/// A long context makes the pass longer by more than 5 %.
#[test]
fn dear_rows_do_not() {
    check(
        "cpu
         at 0ms   A  proactive  prompt 300  output 6
         at 20ms  B  reactive   prompt 20   output 3",
        expect![[r#"
            0.00                 arrive   A proactive
            0.00      cpu0+cpu1  prefill  A[0..100] n0..2                1.00  background
            1.00      cpu0+cpu1  prefill  A[0..100] n2..4                1.10  goes on
            2.10      cpu0+cpu1  prefill  A[0..100] n4..6                1.10  goes on
            3.20      cpu0+cpu1  prefill  A[0..100] n6..7                1.00  goes on
            4.20      cpu0+cpu1  prefill  A[100..200] n0..2              1.00  background
            5.20      cpu0+cpu1  prefill  A[100..200] n2..4              1.20  goes on
            6.40      cpu0+cpu1  prefill  A[100..200] n4..6              1.20  goes on
            7.60      cpu0+cpu1  prefill  A[100..200] n6..7              1.00  goes on
            8.60      cpu0+cpu1  prefill  A[200..300] n0..2              1.00  background
            9.60      cpu0+cpu1  prefill  A[200..300] n2..4              1.30  goes on
            10.90     cpu0+cpu1  prefill  A[200..300] n4..6              1.30  goes on
            12.20     cpu0+cpu1  prefill  A[200..300] n6..7              1.00  goes on
            13.20     cpu0+cpu1  decode   A[300] n0..5                   1.80  background
            15.00     cpu0+cpu1  decode   A[300] n5..7                   0.80  goes on
            15.80     cpu0+cpu1  decode   A[301] n0..5                   1.80  background
            17.60     cpu0+cpu1  decode   A[301] n5..7                   0.80  goes on
            18.41     cpu0+cpu1  decode   A[302] n0..5                   1.80  background
            20.00                arrive   B reactive
            20.21     cpu0+cpu1  prefill  B[0..20]                       2.04  reactive first
            22.25     cpu0+cpu1  decode   B[20]                          2.04  reactive first
            24.29     cpu0+cpu1  decode   B[21]                          2.04  reactive first
            26.33                end      B stop
            26.33     cpu0+cpu1  decode   A[302] n5..7                   0.80  resumes
            27.14     cpu0+cpu1  decode   A[303] n0..5                   1.80  background
            28.94     cpu0+cpu1  decode   A[303] n5..7                   0.80  goes on
            29.75     cpu0+cpu1  decode   A[304] n0..5                   1.80  background
            31.55     cpu0+cpu1  decode   A[304] n5..7                   0.81  goes on
            32.36                end      A stop
        "#]],
    );
}

/// A token that is held to a form is chosen when its mask is there. A's take longer to make than B's passes may take with those
/// that ride, so only C rides.
#[test]
fn riders_whose_masks_are_waited_for_stay_behind() {
    check(
        "cpu
         at 0ms  A  proactive  prompt 20  output 6  masks 30ms
         at 0ms  C  proactive  prompt 20  output 9
         at 99ms B  reactive   prompt 20  output 4",
        expect![[r#"
            0.00                 arrive   A proactive
            0.00                 arrive   C proactive
            0.00      cpu0+cpu1  prefill  A[0..20] n0..3                 0.52  background
            0.52      cpu0+cpu1  prefill  A[0..20] n3..7                 1.52  goes on
            30.52     cpu0+cpu1  prefill  C[0..20] A[20] n0..3           0.54  background, 1 share its weights
            31.06     cpu0+cpu1  prefill  C[0..20] A[20] n3..7           1.54  goes on
            61.06     cpu0+cpu1  decode   A[21] C[20] n0..6              1.59  background
            62.65     cpu0+cpu1  decode   A[21] C[20] n6..7              0.50  goes on
            92.65     cpu0+cpu1  decode   A[22] C[21] n0..6              1.59  background
            94.24     cpu0+cpu1  decode   A[22] C[21] n6..7              0.50  goes on
            99.00                arrive   B reactive
            124.24    cpu0+cpu1  prefill  B[0..20] C[22]                 2.09  reactive first, 1 ride nearly free
            126.32    cpu0+cpu1  decode   B[20] C[23]                    2.09  reactive first, 1 ride nearly free
            128.41    cpu0+cpu1  decode   B[21] C[24]                    2.09  reactive first, 1 ride nearly free
            130.51    cpu0+cpu1  decode   B[22] C[25]                    2.10  reactive first, 1 ride nearly free
            132.60               end      B stop
            132.60    cpu0+cpu1  decode   A[23] C[26] n0..6              1.60  background
            134.21    cpu0+cpu1  decode   A[23] C[26] n6..7              0.50  goes on
            164.21    cpu0+cpu1  decode   A[24] C[27] n0..6              1.61  background
            165.81    cpu0+cpu1  decode   A[24] C[27] n6..7              0.50  goes on
            195.81               end      A stop
            195.81               end      C stop
        "#]],
    );
}

/// Masks that are made while the pass runs cost nothing.
#[test]
fn riders_whose_masks_are_made_in_time_ride() {
    check(
        "cpu
         at 0ms  A  proactive  prompt 20  output 7  masks 1ms
         at 9ms  B  reactive   prompt 20  output 4",
        expect![[r#"
            0.00                 arrive   A proactive
            0.00      cpu0+cpu1  prefill  A[0..20] n0..3                 0.52  background
            0.52      cpu0+cpu1  prefill  A[0..20] n3..7                 1.52  goes on
            2.04      cpu0+cpu1  decode   A[20] n0..6                    1.54  background
            3.58      cpu0+cpu1  decode   A[20] n6..7                    0.50  goes on
            4.58      cpu0+cpu1  decode   A[21] n0..6                    1.54  background
            6.13      cpu0+cpu1  decode   A[21] n6..7                    0.50  goes on
            7.13      cpu0+cpu1  decode   A[22] n0..6                    1.55  background
            8.67      cpu0+cpu1  decode   A[22] n6..7                    0.50  goes on
            9.00                 arrive   B reactive
            9.67      cpu0+cpu1  prefill  B[0..20] A[23]                 2.09  reactive first, 1 ride nearly free
            11.76     cpu0+cpu1  decode   B[20] A[24]                    2.09  reactive first, 1 ride nearly free
            13.85     cpu0+cpu1  decode   B[21] A[25]                    2.10  reactive first, 1 ride nearly free
            15.95                end      A stop
            15.95     cpu0+cpu1  decode   B[22]                          2.05  reactive first
            17.99                end      B stop
        "#]],
    );
}

/// A pass that failed: each of its members is run again alone, so nobody rides with B then.
#[test]
fn nobody_rides_with_one_that_must_be_alone() {
    check(
        "cpu
         at 0ms  A  proactive  prompt 20  output 8
         at 0ms  C  proactive  prompt 20  output 8
         at 12ms B  reactive   prompt 20  output 4  fails-once 1",
        expect![[r#"
            0.00                 arrive   A proactive
            0.00                 arrive   C proactive
            0.00      cpu0+cpu1  prefill  A[0..20] n0..3                 0.52  background
            0.52      cpu0+cpu1  prefill  A[0..20] n3..7                 1.52  goes on
            2.04      cpu0+cpu1  prefill  C[0..20] A[20] n0..3           0.54  background, 1 share its weights
            2.58      cpu0+cpu1  prefill  C[0..20] A[20] n3..7           1.54  goes on
            4.12      cpu0+cpu1  decode   A[21] C[20] n0..6              1.59  background
            5.71      cpu0+cpu1  decode   A[21] C[20] n6..7              0.50  goes on
            6.21      cpu0+cpu1  decode   A[22] C[21] n0..6              1.59  background
            7.80      cpu0+cpu1  decode   A[22] C[21] n6..7              0.50  goes on
            8.30      cpu0+cpu1  decode   A[23] C[22] n0..6              1.59  background
            9.89      cpu0+cpu1  decode   A[23] C[22] n6..7              0.50  goes on
            10.39     cpu0+cpu1  decode   A[24] C[23] n0..6              1.60  background
            11.99     cpu0+cpu1  decode   A[24] C[23] n6..7              0.50  goes on
            12.00                arrive   B reactive
            12.49     cpu0+cpu1  prefill  B[0..20] C[24] A[25]           2.14  reactive first, 2 ride nearly free
            14.63     cpu0+cpu1  decode   B[20] C[25]                    2.09  reactive first, 1 ride nearly free
            16.73                failed   kernel 13
            16.73     cpu0+cpu1  decode   B[20]                          2.04  reactive first
            18.77     cpu0+cpu1  decode   B[21] A[26]                    2.10  reactive first, 1 ride nearly free
            20.87                end      A stop
            20.87     cpu0+cpu1  decode   B[22]                          2.05  reactive first
            22.91                end      B stop
            22.91     cpu0+cpu1  decode   C[25] n0..6                    1.55  background
            24.46     cpu0+cpu1  decode   C[25] n6..7                    0.50  goes on
            24.96     cpu0+cpu1  decode   C[26] n0..6                    1.55  background
            26.52     cpu0+cpu1  decode   C[26] n6..7                    0.50  goes on
            27.02                end      C stop
        "#]],
    );
}
