//! Algorithm 2: who is in the next decode batch.

use crate::check;
use expect_test::expect;

/// A decodes; of the four others two ride, the shortest.
#[test]
fn a_reactive_batch_is_capped() {
    check(
        "npu-igpu  policy agent-xpu  without warm-up  cap 3
         at 0ms   B  proactive  prompt 50  output 9
         at 0ms   C  proactive  prompt 20  output 9
         at 0ms   D  proactive  prompt 30  output 9
         at 0ms   E  proactive  prompt 40  output 9
         at 14ms  A  reactive   prompt 20  output 3",
        expect![[r#"
            0.00                 arrive   B proactive
            0.00                 arrive   C proactive
            0.00                 arrive   D proactive
            0.00                 arrive   E proactive
            0.00      igpu       prefill  B[0..50] n0..3                 1.05  dynamic shape
            1.05      igpu       prefill  B[0..50] n3..5                 2.00  dynamic shape
            3.05      igpu       prefill  B[0..50] n5..7                 1.05  dynamic shape
            4.10      igpu       prefill  C[0..20] n0..6                 1.54  dynamic shape
            5.64      igpu       prefill  C[0..20] n6..7                 0.50  dynamic shape
            6.14      igpu       prefill  D[0..30] n0..6                 1.86  dynamic shape
            8.00      igpu       prefill  D[0..30] n6..7                 0.60  dynamic shape
            8.60      igpu       prefill  E[0..40] n0..4                 1.64  dynamic shape
            10.24     igpu       prefill  E[0..40] n4..7                 1.64  dynamic shape
            11.88     igpu       decode   C[20] D[30] E[40] B[50] n0..6   1.79  fills the gap
            13.67     igpu       decode   C[20] D[30] E[40] B[50] n6..7   0.50  goes on
            14.00                arrive   A reactive
            14.17     igpu       prefill  A[0..20] n0..6                 1.54  dynamic shape
            15.71     igpu       prefill  A[0..20] n6..7                 0.50  dynamic shape
            16.21     igpu       decode   A[20] C[21] D[31] n0..6        1.65  reactive first, 2 fill the batch
            17.86     igpu       decode   A[20] C[21] D[31] n6..7        0.50  goes on
            18.36     igpu       decode   A[21] C[22] D[32] n0..6        1.66  reactive first, 2 fill the batch
            20.01     igpu       decode   A[21] C[22] D[32] n6..7        0.50  goes on
            20.51                end      A stop
            20.51     igpu       decode   C[23] D[33] E[41] B[51] n0..6   1.80  fills the gap
            22.32     igpu       decode   C[23] D[33] E[41] B[51] n6..7   0.50  goes on
            22.82     igpu       decode   C[24] D[34] E[42] B[52] n0..6   1.81  fills the gap
            24.63     igpu       decode   C[24] D[34] E[42] B[52] n6..7   0.50  goes on
            25.13     igpu       decode   C[25] D[35] E[43] B[53] n0..6   1.82  fills the gap
            26.95     igpu       decode   C[25] D[35] E[43] B[53] n6..7   0.50  goes on
            27.45     igpu       decode   C[26] D[36] E[44] B[54] n0..6   1.83  fills the gap
            29.28     igpu       decode   C[26] D[36] E[44] B[54] n6..7   0.50  goes on
            29.78     igpu       decode   C[27] D[37] E[45] B[55] n0..6   1.84  fills the gap
            31.61     igpu       decode   C[27] D[37] E[45] B[55] n6..7   0.50  goes on
            32.11                end      C stop
            32.11                end      D stop
            32.11     igpu       decode   E[46] B[56] n0..6              1.71  fills the gap
            33.82     igpu       decode   E[46] B[56] n6..7              0.50  goes on
            34.32     igpu       decode   E[47] B[57] n0..6              1.71  fills the gap
            36.03     igpu       decode   E[47] B[57] n6..7              0.50  goes on
            36.53                end      E stop
            36.53                end      B stop
        "#]],
    );
}

/// All ride, and A waits for the longest.
#[test]
fn a_reactive_batch_is_capped_switched_off() {
    check(
        "npu-igpu  policy agent-xpu  without warm-up  cap 3  without batch-cap
         at 0ms   B  proactive  prompt 50  output 9
         at 0ms   C  proactive  prompt 20  output 9
         at 0ms   D  proactive  prompt 30  output 9
         at 0ms   E  proactive  prompt 40  output 9
         at 14ms  A  reactive   prompt 20  output 3",
        expect![[r#"
            0.00                 arrive   B proactive
            0.00                 arrive   C proactive
            0.00                 arrive   D proactive
            0.00                 arrive   E proactive
            0.00      igpu       prefill  B[0..50] n0..3                 1.05  dynamic shape
            1.05      igpu       prefill  B[0..50] n3..5                 2.00  dynamic shape
            3.05      igpu       prefill  B[0..50] n5..7                 1.05  dynamic shape
            4.10      igpu       prefill  C[0..20] n0..6                 1.54  dynamic shape
            5.64      igpu       prefill  C[0..20] n6..7                 0.50  dynamic shape
            6.14      igpu       prefill  D[0..30] n0..6                 1.86  dynamic shape
            8.00      igpu       prefill  D[0..30] n6..7                 0.60  dynamic shape
            8.60      igpu       prefill  E[0..40] n0..4                 1.64  dynamic shape
            10.24     igpu       prefill  E[0..40] n4..7                 1.64  dynamic shape
            11.88     igpu       decode   C[20] D[30] E[40] B[50] n0..6   1.79  fills the gap
            13.67     igpu       decode   C[20] D[30] E[40] B[50] n6..7   0.50  goes on
            14.00                arrive   A reactive
            14.17     igpu       prefill  A[0..20] n0..6                 1.54  dynamic shape
            15.71     igpu       prefill  A[0..20] n6..7                 0.50  dynamic shape
            16.21     igpu       decode   A[20] C[21] D[31] E[41] B[51] n0..6   1.84  reactive first, 4 fill the batch
            18.05     igpu       decode   A[20] C[21] D[31] E[41] B[51] n6..7   0.50  goes on
            18.55     igpu       decode   A[21] C[22] D[32] E[42] B[52] n0..6   1.85  reactive first, 4 fill the batch
            20.39     igpu       decode   A[21] C[22] D[32] E[42] B[52] n6..7   0.50  goes on
            20.89                end      A stop
            20.89     igpu       decode   C[23] D[33] E[43] B[53] n0..6   1.81  fills the gap
            22.71     igpu       decode   C[23] D[33] E[43] B[53] n6..7   0.50  goes on
            23.21     igpu       decode   C[24] D[34] E[44] B[54] n0..6   1.82  fills the gap
            25.03     igpu       decode   C[24] D[34] E[44] B[54] n6..7   0.50  goes on
            25.53     igpu       decode   C[25] D[35] E[45] B[55] n0..6   1.83  fills the gap
            27.35     igpu       decode   C[25] D[35] E[45] B[55] n6..7   0.50  goes on
            27.85     igpu       decode   C[26] D[36] E[46] B[56] n0..6   1.84  fills the gap
            29.69     igpu       decode   C[26] D[36] E[46] B[56] n6..7   0.50  goes on
            30.19     igpu       decode   C[27] D[37] E[47] B[57] n0..6   1.84  fills the gap
            32.03     igpu       decode   C[27] D[37] E[47] B[57] n6..7   0.50  goes on
            32.53                end      C stop
            32.53                end      D stop
            32.53                end      E stop
            32.53                end      B stop
        "#]],
    );
}

/// Two places for three.
#[test]
fn the_longest_stays_out() {
    check(
        "npu-igpu  policy agent-xpu  without warm-up  batch 2
         at 0ms  A  proactive  prompt 90  output 5
         at 0ms  B  proactive  prompt 20  output 5
         at 0ms  C  proactive  prompt 30  output 5",
        expect![[r#"
            0.00                 arrive   A proactive
            0.00                 arrive   B proactive
            0.00                 arrive   C proactive
            0.00      igpu       prefill  A[0..90] n0..3                 1.89  dynamic shape
            1.89      igpu       prefill  A[0..90] n3..4                 1.80  dynamic shape
            3.69      igpu       prefill  A[0..90] n4..6                 1.89  dynamic shape
            5.58      igpu       prefill  A[0..90] n6..7                 1.80  dynamic shape
            7.38      igpu       prefill  B[0..20] n0..6                 1.54  dynamic shape
            8.92      igpu       prefill  B[0..20] n6..7                 0.50  dynamic shape
            9.42      igpu       decode   B[20] A[90] n0..6              1.72  fills the gap
            11.14     igpu       decode   B[20] A[90] n6..7              0.50  goes on
            11.64     igpu       decode   B[21] A[91] n0..6              1.73  fills the gap
            13.37     igpu       decode   B[21] A[91] n6..7              0.50  goes on
            13.87     igpu       decode   B[22] A[92] n0..6              1.73  fills the gap
            15.60     igpu       decode   B[22] A[92] n6..7              0.50  goes on
            16.10     igpu       decode   B[23] A[93] n0..6              1.74  fills the gap
            17.84     igpu       decode   B[23] A[93] n6..7              0.50  goes on
            18.34                end      B stop
            18.34                end      A stop
            18.34     igpu       prefill  C[0..30] n0..6                 1.86  dynamic shape
            20.20     igpu       prefill  C[0..30] n6..7                 0.60  dynamic shape
            20.80     igpu       decode   C[30] n0..6                    1.56  fills the gap
            22.36     igpu       decode   C[30] n6..7                    0.50  goes on
            22.86     igpu       decode   C[31] n0..6                    1.56  fills the gap
            24.43     igpu       decode   C[31] n6..7                    0.50  goes on
            24.93     igpu       decode   C[32] n0..6                    1.57  fills the gap
            26.49     igpu       decode   C[32] n6..7                    0.50  goes on
            26.99     igpu       decode   C[33] n0..6                    1.57  fills the gap
            28.56     igpu       decode   C[33] n6..7                    0.50  goes on
            29.06                end      C stop
        "#]],
    );
}

/// B is older than 10 ms.
#[test]
fn overdue_requests_are_in_whatever_the_cap_says() {
    check(
        "npu-igpu  policy agent-xpu  without warm-up  cap 1  age 10ms
         at 0ms   B  proactive  prompt 20  output 9
         at 8ms   A  reactive   prompt 20  output 4",
        expect![[r#"
            0.00                 arrive   B proactive
            0.00      igpu       prefill  B[0..20] n0..6                 1.54  dynamic shape
            1.54      igpu       prefill  B[0..20] n6..7                 0.50  dynamic shape
            2.04      igpu       decode   B[20] n0..6                    1.54  fills the gap
            3.58      igpu       decode   B[20] n6..7                    0.50  goes on
            4.08      igpu       decode   B[21] n0..6                    1.54  fills the gap
            5.63      igpu       decode   B[21] n6..7                    0.50  goes on
            6.13      igpu       decode   B[22] n0..6                    1.55  fills the gap
            7.67      igpu       decode   B[22] n6..7                    0.50  goes on
            8.00                 arrive   A reactive
            8.17      igpu       prefill  A[0..20] n0..6                 1.54  dynamic shape
            9.71      igpu       prefill  A[0..20] n6..7                 0.50  dynamic shape
            10.21     igpu       decode   A[20] B[23] n0..6              1.59  reactive first, 1 fill the batch
            11.80     igpu       decode   A[20] B[23] n6..7              0.50  goes on
            12.30     igpu       decode   A[21] B[24] n0..6              1.59  reactive first, 1 fill the batch
            13.90     igpu       decode   A[21] B[24] n6..7              0.50  goes on
            14.40     igpu       decode   A[22] B[25] n0..6              1.60  reactive first, 1 fill the batch
            15.99     igpu       decode   A[22] B[25] n6..7              0.50  goes on
            16.49                end      A stop
            16.49     igpu       decode   B[26] n0..6                    1.55  fills the gap
            18.05     igpu       decode   B[26] n6..7                    0.50  goes on
            18.55     igpu       decode   B[27] n0..6                    1.56  fills the gap
            20.10     igpu       decode   B[27] n6..7                    0.50  goes on
            20.60                end      B stop
        "#]],
    );
}

/// Three people's streams, and room for two in a pass: they take turns, and none stops.
#[test]
fn streams_that_are_more_than_a_batch_take_turns() {
    check(
        "cpu  batch 2
         at 0ms  A  reactive  prompt 20  output 5
         at 0ms  B  reactive  prompt 20  output 5
         at 0ms  C  reactive  prompt 20  output 5",
        expect![[r#"
            0.00                 arrive   A reactive
            0.00                 arrive   B reactive
            0.00                 arrive   C reactive
            0.00      cpu0+cpu1  prefill  A[0..20]                       2.04  reactive first
            2.04      cpu0+cpu1  prefill  B[0..20] A[20]                 2.08  reactive first
            4.12      cpu0+cpu1  prefill  C[0..20] A[21] B[20]           2.13  reactive first
            6.25      cpu0+cpu1  decode   A[22] B[21]                    2.09  reactive first
            8.34      cpu0+cpu1  decode   A[23] C[20]                    2.09  reactive first
            10.43                end      A stop
            10.43     cpu0+cpu1  decode   B[22] C[21]                    2.09  reactive first
            12.52     cpu0+cpu1  decode   B[23] C[22]                    2.09  reactive first
            14.61                end      B stop
            14.61     cpu0+cpu1  decode   C[23]                          2.05  reactive first
            16.66                end      C stop
        "#]],
    );
}
