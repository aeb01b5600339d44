//! Pages: what ended requests left goes first, then live background requests; to disk, and back.

use crate::check;
use expect_test::expect;

/// B needs pages; what A left goes to disk, and A goes on from there.
#[test]
fn a_cold_flow_is_spilled_and_read_back() {
    check(
        "single  pages 15  disk 20  page-io 0.1ms
         at 0ms   A  reactive  prompt 100  output 2
         at 20ms  B  reactive  prompt 100  output 1
         at 40ms  C  reactive  prompt 120  output 1  continues A",
        expect![[r#"
            0.00                 arrive   A reactive
            0.00      cpu        prefill  A[0..100]                      4.20  reactive first
            4.20      cpu        decode   A[100]                         2.20  reactive first
            6.40                 end      A stop
            20.00                arrive   B reactive
            20.00                spill    A
            21.10                spilled  A
            21.10     cpu        prefill  B[0..100]                      4.20  reactive first
            25.30                end      B stop
            40.00                arrive   C reactive
            40.00                forget   B
            41.10                cached   C[0..101] all of A
            41.10     cpu        prefill  C[101..120]                    2.24  reactive first
            43.34                end      C stop
        "#]],
    );
}

/// It is given up, and computed again.
#[test]
fn a_cold_flow_is_spilled_and_read_back_switched_off() {
    check(
        "single  pages 15  disk 20  page-io 0.1ms  without spill
         at 0ms   A  reactive  prompt 100  output 2
         at 20ms  B  reactive  prompt 100  output 1
         at 40ms  C  reactive  prompt 120  output 1  continues A",
        expect![[r#"
            0.00                 arrive   A reactive
            0.00      cpu        prefill  A[0..100]                      4.20  reactive first
            4.20      cpu        decode   A[100]                         2.20  reactive first
            6.40                 end      A stop
            20.00                arrive   B reactive
            20.00                forget   A
            20.00     cpu        prefill  B[0..100]                      4.20  reactive first
            24.20                end      B stop
            40.00                arrive   C reactive
            40.00                forget   B
            40.00     cpu        prefill  C[0..100]                      4.20  reactive first
            44.20     cpu        prefill  C[100..120]                    2.24  reactive first
            46.44                end      C stop
        "#]],
    );
}

/// A goes to disk whole while B has its pages, and is not computed again.
#[test]
fn a_live_background_request_is_spilled_and_resumes() {
    check(
        "single  pages 15  disk 20  page-io 0.1ms
         at 0ms   A  proactive  prompt 100  output 9
         at 8ms   B  reactive   prompt 100  output 2",
        expect![[r#"
            0.00                 arrive   A proactive
            0.00      cpu        prefill  A[0..100] n0..2                1.00  background
            1.00      cpu        prefill  A[0..100] n2..4                1.10  goes on
            2.10      cpu        prefill  A[0..100] n4..6                1.10  goes on
            3.20      cpu        prefill  A[0..100] n6..7                1.00  goes on
            4.20      cpu        decode   A[100] n0..6                   1.70  background
            5.90      cpu        decode   A[100] n6..7                   0.50  goes on
            6.40      cpu        decode   A[101] n0..6                   1.70  background
            8.00                 arrive   B reactive
            8.11      cpu        decode   A[101] n6..7                   0.50  goes on
            8.61                 spill    A
            9.71                 spilled  A
            9.71      cpu        prefill  B[0..100]                      4.20  reactive first
            13.91     cpu        decode   B[100]                         2.20  reactive first
            16.11                end      B stop
            16.11                forget   B
            17.21                cached   A[0..102] its own, from disk
            17.21     cpu        decode   A[102] n0..6                   1.71  background
            18.91     cpu        decode   A[102] n6..7                   0.50  goes on
            19.41     cpu        decode   A[103] n0..6                   1.71  background
            21.12     cpu        decode   A[103] n6..7                   0.50  goes on
            21.62     cpu        decode   A[104] n0..6                   1.71  background
            23.33     cpu        decode   A[104] n6..7                   0.50  goes on
            23.83     cpu        decode   A[105] n0..6                   1.71  background
            25.54     cpu        decode   A[105] n6..7                   0.50  goes on
            26.04     cpu        decode   A[106] n0..6                   1.71  background
            27.76     cpu        decode   A[106] n6..7                   0.50  goes on
            28.26     cpu        decode   A[107] n0..6                   1.72  background
            29.97     cpu        decode   A[107] n6..7                   0.50  goes on
            30.47                end      A stop
        "#]],
    );
}

/// T shares its template with S, which nobody continued: it is a one-off. The chat was continued. So the next one makes room at the cost of the titles, however recent they are.
#[test]
fn a_title_never_evicts_a_chat() {
    check(
        "single  pages 40
         at 0ms    A  reactive  prompt 100  output 1
         at 20ms   S  reactive  prompt 60   output 1
         at 40ms   B  reactive  prompt 140  output 1  continues A
         at 60ms   T  reactive  prompt 60   output 1  shares 50 of S
         at 80ms   X  reactive  prompt 170  output 1
         at 100ms  C  reactive  prompt 180  output 1  continues B",
        expect![[r#"
            0.00                 arrive   A reactive
            0.00      cpu        prefill  A[0..100]                      4.20  reactive first
            4.20                 end      A stop
            20.00                arrive   S reactive
            20.00     cpu        prefill  S[0..60]                       2.52  reactive first
            22.52                end      S stop
            40.00                arrive   B reactive
            40.00                cached   B[0..100] all of A
            40.00     cpu        prefill  B[100..140]                    2.28  reactive first
            42.28                end      B stop
            60.00                arrive   T reactive
            60.00                cached   T[0..50] of S
            60.00     cpu        prefill  T[50..60]                      2.12  reactive first
            62.12                end      T stop
            80.00                arrive   X reactive
            80.00                forget   S
            80.00     cpu        prefill  X[0..100]                      4.20  reactive first
            84.20     cpu        prefill  X[100..170]                    3.14  reactive first
            87.34                end      X stop
            100.00               arrive   C reactive
            100.00               forget   T
            100.00               cached   C[0..140] all of B
            100.00    cpu        prefill  C[140..180]                    2.36  reactive first
            102.36               end      C stop
        "#]],
    );
}

/// The disk would not take it: A begins again, since its pages are wanted.
#[test]
fn a_spill_that_fails() {
    check(
        "single  pages 15  disk 20  spill-fails 0
         at 0ms   A  proactive  prompt 100  output 9
         at 8ms   B  reactive   prompt 100  output 2",
        expect![[r#"
            0.00                 arrive   A proactive
            0.00      cpu        prefill  A[0..100] n0..2                1.00  background
            1.00      cpu        prefill  A[0..100] n2..4                1.10  goes on
            2.10      cpu        prefill  A[0..100] n4..6                1.10  goes on
            3.20      cpu        prefill  A[0..100] n6..7                1.00  goes on
            4.20      cpu        decode   A[100] n0..6                   1.70  background
            5.90      cpu        decode   A[100] n6..7                   0.50  goes on
            6.40      cpu        decode   A[101] n0..6                   1.70  background
            8.00                 arrive   B reactive
            8.11      cpu        decode   A[101] n6..7                   0.50  goes on
            8.61                 spill    A
            9.71                 failed   spill of A
            9.71                 discard  A
            9.71      cpu        prefill  B[0..100]                      4.20  reactive first
            13.91     cpu        decode   B[100]                         2.20  reactive first
            16.11                end      B stop
            16.11                spill    B
            17.21                spilled  B
            17.21     cpu        prefill  A[0..100] n0..2                1.00  background
            18.21     cpu        prefill  A[0..100] n2..4                1.10  goes on
            19.31     cpu        prefill  A[0..100] n4..6                1.10  goes on
            20.41     cpu        prefill  A[0..100] n6..7                1.00  goes on
            21.41     cpu        prefill  A[100..103] n0..3              0.60  background
            22.01     cpu        prefill  A[100..103] n3..7              1.60  goes on
            23.61     cpu        decode   A[103] n0..6                   1.71  background
            25.32     cpu        decode   A[103] n6..7                   0.50  goes on
            25.82     cpu        decode   A[104] n0..6                   1.71  background
            27.53     cpu        decode   A[104] n6..7                   0.50  goes on
            28.03     cpu        decode   A[105] n0..6                   1.71  background
            29.74     cpu        decode   A[105] n6..7                   0.50  goes on
            30.24     cpu        decode   A[106] n0..6                   1.71  background
            31.96     cpu        decode   A[106] n6..7                   0.50  goes on
            32.46     cpu        decode   A[107] n0..6                   1.72  background
            34.17     cpu        decode   A[107] n6..7                   0.50  goes on
            34.67                end      A stop
        "#]],
    );
}

/// It fails, and does not stand in anybody else's way.
#[test]
fn a_prompt_that_can_never_fit() {
    check(
        "single  pages 15
         at 0ms  A  reactive  prompt 200  output 1
         at 0ms  B  reactive  prompt 20   output 1",
        expect![[r#"
            0.00                 arrive   A reactive
            0.00                 end      A failed
            0.00                 arrive   B reactive
            0.00      cpu        prefill  B[0..20]                       2.04  reactive first
            2.04                 end      B stop
        "#]],
    );
}
