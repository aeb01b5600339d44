//! Overdue background work has its privileges, and its share.

use crate::check;
use expect_test::expect;

/// First privilege: A is read on the iGPU beside the reactive chunks on the NPU.
#[test]
fn an_overdue_prefill_may_use_the_dynamic_lane() {
    check(
        "npu-igpu  policy agent-xpu  without warm-up  age 4ms
         at 0ms  A  proactive  prompt 100  output 1
         at 1ms  B  reactive   prompt 400  output 1
         at 1ms  C  reactive   prompt 400  output 1",
        expect![[r#"
            0.00                 arrive   A proactive
            0.00      npu        prefill  A[0..100] n0..2                1.00  chunk
            1.00                 arrive   B reactive
            1.00                 arrive   C reactive
            1.00      igpu       prefill  B[0..400] n0..2 r300..400      2.00  balanced, 3 chunks on the static lane
            1.00      npu        prefill  B[0..400] n0..2 r0..100        1.00  balanced, 3 chunks on the static lane
            2.00      npu        prefill  B[0..400] n0..2 r100..200      1.00  balanced, 3 chunks on the static lane
            3.00      npu        prefill  B[0..400] n0..2 r200..300      1.00  balanced, 3 chunks on the static lane
            4.00      igpu       prefill  B[0..400] n2..3                0.40  dynamic shape
            4.40      npu        prefill  B[0..400] n3..4 r0..100        1.00  chunk
            4.40      igpu       prefill  A[0..100] n2..3                0.10  overdue: takes the dynamic lane
            4.50      igpu       prefill  A[0..100] n3..4                2.00  overdue: takes the dynamic lane
            5.40      npu        prefill  B[0..400] n3..4 r100..200      1.00  chunk
            6.40      npu        prefill  B[0..400] n3..4 r200..300      1.00  chunk
            6.50      igpu       prefill  A[0..100] n4..5                2.00  overdue: takes the dynamic lane
            7.40      npu        prefill  B[0..400] n3..4 r300..400      1.00  chunk
            8.40      npu        prefill  B[0..400] n4..5 r0..100        1.00  chunk
            8.50      igpu       prefill  A[0..100] n5..6                0.10  overdue: takes the dynamic lane
            8.60      igpu       prefill  A[0..100] n6..7                2.00  overdue: takes the dynamic lane
            9.40      npu        prefill  B[0..400] n4..5 r100..200      1.00  chunk
            10.40     npu        prefill  B[0..400] n4..5 r200..300      1.00  chunk
            10.60                end      A stop
            11.40     npu        prefill  B[0..400] n4..5 r300..400      1.00  balanced, 4 chunks on the static lane
            12.40     igpu       prefill  B[0..400] n5..6                0.40  dynamic shape
            12.80     npu        prefill  B[0..400] n6..7 r0..100        1.00  balanced, 3 chunks on the static lane
            12.80     igpu       prefill  B[0..400] n6..7 r300..400      2.00  balanced, 3 chunks on the static lane
            13.80     npu        prefill  B[0..400] n6..7 r100..200      1.00  balanced, 3 chunks on the static lane
            14.80     npu        prefill  B[0..400] n6..7 r200..300      1.00  balanced, 3 chunks on the static lane
            15.80                end      B stop
            15.80     npu        prefill  C[0..400] n0..2 r0..100        1.00  balanced, 3 chunks on the static lane
            15.80     igpu       prefill  C[0..400] n0..2 r300..400      2.00  balanced, 3 chunks on the static lane
            16.80     npu        prefill  C[0..400] n0..2 r100..200      1.00  balanced, 3 chunks on the static lane
            17.80     npu        prefill  C[0..400] n0..2 r200..300      1.00  balanced, 3 chunks on the static lane
            18.80     igpu       prefill  C[0..400] n2..3                0.40  dynamic shape
            19.20     npu        prefill  C[0..400] n3..4 r0..100        1.00  balanced, 3 chunks on the static lane
            19.20     igpu       prefill  C[0..400] n3..4 r300..400      2.00  balanced, 3 chunks on the static lane
            20.20     npu        prefill  C[0..400] n3..4 r100..200      1.00  balanced, 3 chunks on the static lane
            21.20     npu        prefill  C[0..400] n3..4 r200..300      1.00  balanced, 3 chunks on the static lane
            22.20     npu        prefill  C[0..400] n4..5 r0..100        1.00  balanced, 3 chunks on the static lane
            22.20     igpu       prefill  C[0..400] n4..5 r300..400      2.00  balanced, 3 chunks on the static lane
            23.20     npu        prefill  C[0..400] n4..5 r100..200      1.00  balanced, 3 chunks on the static lane
            24.20     npu        prefill  C[0..400] n4..5 r200..300      1.00  balanced, 3 chunks on the static lane
            25.20     igpu       prefill  C[0..400] n5..6                0.40  dynamic shape
            25.60     npu        prefill  C[0..400] n6..7 r0..100        1.00  balanced, 3 chunks on the static lane
            25.60     igpu       prefill  C[0..400] n6..7 r300..400      2.00  balanced, 3 chunks on the static lane
            26.60     npu        prefill  C[0..400] n6..7 r100..200      1.00  balanced, 3 chunks on the static lane
            27.60     npu        prefill  C[0..400] n6..7 r200..300      1.00  balanced, 3 chunks on the static lane
            28.60                end      C stop
        "#]],
    );
}

/// A waits for both.
#[test]
fn an_overdue_prefill_may_use_the_dynamic_lane_switched_off() {
    check(
        "npu-igpu  policy agent-xpu  without warm-up  age 4ms  without ageing
         at 0ms  A  proactive  prompt 100  output 1
         at 1ms  B  reactive   prompt 400  output 1
         at 1ms  C  reactive   prompt 400  output 1",
        expect![[r#"
            0.00                 arrive   A proactive
            0.00      npu        prefill  A[0..100] n0..2                1.00  chunk
            1.00                 arrive   B reactive
            1.00                 arrive   C reactive
            1.00      igpu       prefill  B[0..400] n0..2 r300..400      2.00  balanced, 3 chunks on the static lane
            1.00      npu        prefill  B[0..400] n0..2 r0..100        1.00  balanced, 3 chunks on the static lane
            2.00      npu        prefill  B[0..400] n0..2 r100..200      1.00  balanced, 3 chunks on the static lane
            3.00      npu        prefill  B[0..400] n0..2 r200..300      1.00  balanced, 3 chunks on the static lane
            4.00      igpu       prefill  B[0..400] n2..3                0.40  dynamic shape
            4.40      npu        prefill  B[0..400] n3..4 r0..100        1.00  balanced, 3 chunks on the static lane
            4.40      igpu       prefill  B[0..400] n3..4 r300..400      2.00  balanced, 3 chunks on the static lane
            5.40      npu        prefill  B[0..400] n3..4 r100..200      1.00  balanced, 3 chunks on the static lane
            6.40      npu        prefill  B[0..400] n3..4 r200..300      1.00  balanced, 3 chunks on the static lane
            7.40      npu        prefill  B[0..400] n4..5 r0..100        1.00  balanced, 3 chunks on the static lane
            7.40      igpu       prefill  B[0..400] n4..5 r300..400      2.00  balanced, 3 chunks on the static lane
            8.40      npu        prefill  B[0..400] n4..5 r100..200      1.00  balanced, 3 chunks on the static lane
            9.40      npu        prefill  B[0..400] n4..5 r200..300      1.00  balanced, 3 chunks on the static lane
            10.40     igpu       prefill  B[0..400] n5..6                0.40  dynamic shape
            10.80     npu        prefill  B[0..400] n6..7 r0..100        1.00  balanced, 3 chunks on the static lane
            10.80     igpu       prefill  B[0..400] n6..7 r300..400      2.00  balanced, 3 chunks on the static lane
            11.80     npu        prefill  B[0..400] n6..7 r100..200      1.00  balanced, 3 chunks on the static lane
            12.80     npu        prefill  B[0..400] n6..7 r200..300      1.00  balanced, 3 chunks on the static lane
            13.80                end      B stop
            13.80     npu        prefill  C[0..400] n0..2 r0..100        1.00  balanced, 3 chunks on the static lane
            13.80     igpu       prefill  C[0..400] n0..2 r300..400      2.00  balanced, 3 chunks on the static lane
            14.80     npu        prefill  C[0..400] n0..2 r100..200      1.00  balanced, 3 chunks on the static lane
            15.80     npu        prefill  C[0..400] n0..2 r200..300      1.00  balanced, 3 chunks on the static lane
            16.80     igpu       prefill  C[0..400] n2..3                0.40  dynamic shape
            17.20     npu        prefill  C[0..400] n3..4 r0..100        1.00  balanced, 3 chunks on the static lane
            17.20     igpu       prefill  C[0..400] n3..4 r300..400      2.00  balanced, 3 chunks on the static lane
            18.20     npu        prefill  C[0..400] n3..4 r100..200      1.00  balanced, 3 chunks on the static lane
            19.20     npu        prefill  C[0..400] n3..4 r200..300      1.00  balanced, 3 chunks on the static lane
            20.20     npu        prefill  C[0..400] n4..5 r0..100        1.00  balanced, 3 chunks on the static lane
            20.20     igpu       prefill  C[0..400] n4..5 r300..400      2.00  balanced, 3 chunks on the static lane
            21.20     npu        prefill  C[0..400] n4..5 r100..200      1.00  balanced, 3 chunks on the static lane
            22.20     npu        prefill  C[0..400] n4..5 r200..300      1.00  balanced, 3 chunks on the static lane
            23.20     igpu       prefill  C[0..400] n5..6                0.40  dynamic shape
            23.60     npu        prefill  C[0..400] n6..7 r0..100        1.00  balanced, 3 chunks on the static lane
            23.60     igpu       prefill  C[0..400] n6..7 r300..400      2.00  balanced, 3 chunks on the static lane
            24.60     npu        prefill  C[0..400] n6..7 r100..200      1.00  balanced, 3 chunks on the static lane
            25.60     npu        prefill  C[0..400] n6..7 r200..300      1.00  balanced, 3 chunks on the static lane
            26.60                end      C stop
            26.60     igpu       prefill  A[0..100] n2..3                0.10  dynamic shape
            26.70     npu        prefill  A[0..100] n3..4                1.00  chunk
            27.70     npu        prefill  A[0..100] n4..5                1.00  chunk
            28.70     igpu       prefill  A[0..100] n5..6                0.10  dynamic shape
            28.80     npu        prefill  A[0..100] n6..7                1.00  chunk
            29.80                end      A stop
        "#]],
    );
}

/// Second privilege: one that is not nearly free rides.
#[test]
fn an_overdue_decode_joins_whatever_it_costs() {
    check(
        "cpu  age 24ms
         at 0ms   A  proactive  prompt 300  output 4
         at 18ms  B  reactive   prompt 20   output 6",
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
            18.00                arrive   B reactive
            18.41     cpu0+cpu1  prefill  B[0..20]                       2.04  reactive first
            20.45     cpu0+cpu1  decode   B[20]                          2.04  reactive first
            22.49     cpu0+cpu1  decode   B[21]                          2.04  reactive first
            24.53     cpu0+cpu1  decode   B[22] A[302]                   2.65  reactive first, 1 ride nearly free
            27.18                end      A stop
            27.18     cpu0+cpu1  decode   B[23]                          2.05  reactive first
            29.23     cpu0+cpu1  decode   B[24]                          2.05  reactive first
            31.28                end      B stop
        "#]],
    );
}

/// A fifth here: after 10 ms A is owed a kernel now and then, and gets it between two reactive passes.
#[test]
fn overdue_work_has_its_share() {
    check(
        "cpu  age 10ms  share 0.2
         at 0ms  A  proactive  prompt 200  output 1
         at 0ms  B  reactive   prompt 100  output 1
         at 0ms  C  reactive   prompt 100  output 1
         at 0ms  D  reactive   prompt 100  output 1
         at 0ms  E  reactive   prompt 100  output 1
         at 0ms  F  reactive   prompt 100  output 1
         at 0ms  G  reactive   prompt 100  output 1
         at 0ms  H  reactive   prompt 100  output 1
         at 0ms  I  reactive   prompt 100  output 1",
        expect![[r#"
            0.00                 arrive   A proactive
            0.00                 arrive   B reactive
            0.00                 arrive   C reactive
            0.00                 arrive   D reactive
            0.00                 arrive   E reactive
            0.00                 arrive   F reactive
            0.00                 arrive   G reactive
            0.00                 arrive   H reactive
            0.00                 arrive   I reactive
            0.00      cpu0+cpu1  prefill  A[0..100] n0..2                1.00  background
            1.00      cpu0+cpu1  prefill  B[0..100]                      4.20  reactive first
            5.20                 end      B stop
            5.20      cpu0+cpu1  prefill  C[0..100]                      4.20  reactive first
            9.40                 end      C stop
            9.40      cpu0+cpu1  prefill  D[0..100]                      4.20  reactive first
            13.60                end      D stop
            13.60     cpu0+cpu1  prefill  E[0..100]                      4.20  reactive first
            17.80                end      E stop
            17.80     cpu0+cpu1  prefill  A[0..100] n2..4                1.10  overdue: its share
            18.90     cpu0+cpu1  prefill  F[0..100]                      4.20  reactive first
            23.10                end      F stop
            23.10     cpu0+cpu1  prefill  A[0..100] n4..6                1.10  overdue: its share
            24.20     cpu0+cpu1  prefill  G[0..100]                      4.20  reactive first
            28.40                end      G stop
            28.40     cpu0+cpu1  prefill  A[0..100] n6..7                1.00  overdue: its share
            29.40     cpu0+cpu1  prefill  H[0..100]                      4.20  reactive first
            33.60                end      H stop
            33.60     cpu0+cpu1  prefill  A[100..200] n0..3              1.20  overdue: its share
            34.80     cpu0+cpu1  prefill  I[0..100]                      4.20  reactive first
            39.00                end      I stop
            39.00     cpu0+cpu1  prefill  A[100..200] n3..5              2.00  resumes
            41.00     cpu0+cpu1  prefill  A[100..200] n5..7              1.20  goes on
            42.20                end      A stop
        "#]],
    );
}

/// On one lane `agent-xpu` has no lane beside B, C and D for the overdue A: it has its share between their kernels.
#[test]
fn agent_xpu_shares_its_only_lane_with_overdue_work() {
    check(
        "single  policy agent-xpu  age 4ms  share 0.3  preempt 2ms
         at 0ms  A  proactive  prompt 100  output 2
         at 0ms  B  reactive   prompt 100  output 1
         at 1ms  C  reactive   prompt 300  output 1
         at 1ms  D  reactive   prompt 300  output 1",
        expect![[r#"
            0.00                 arrive   A proactive
            0.00                 arrive   B reactive
            0.00      cpu        prefill  A[0..100] n0..2                1.00  background
            1.00                 arrive   C reactive
            1.00                 arrive   D reactive
            1.00      cpu        prefill  B[0..100] n0..2                1.00  keeps off decode
            2.00      cpu        prefill  B[0..100] n2..3                0.10  keeps off decode
            2.10      cpu        prefill  B[0..100] n3..4                1.00  keeps off decode
            3.10      cpu        prefill  B[0..100] n4..5                1.00  keeps off decode
            4.10      cpu        prefill  B[0..100] n5..6                0.10  keeps off decode
            4.20      cpu        prefill  B[0..100] n6..7                1.00  keeps off decode
            5.20                 end      B stop
            5.20      cpu        prefill  C[0..132] n0..1                0.00  keeps off decode
            5.20      cpu        prefill  C[0..132] n1..2 r0..96         0.96  keeps off decode
            6.16      cpu        prefill  C[0..132] n1..2 r96..132       0.50  keeps off decode
            6.66      cpu        prefill  A[0..100] n2..3                0.10  overdue: its share
            6.76      cpu        prefill  C[0..132] n2..3                0.13  keeps off decode
            6.89      cpu        prefill  A[0..100] n3..4                1.00  overdue: its share
            7.89      cpu        prefill  C[0..132] n3..4 r0..96         0.96  keeps off decode
            8.85      cpu        prefill  C[0..132] n3..4 r96..132       0.50  keeps off decode
            9.35      cpu        prefill  C[0..132] n4..5 r0..96         0.96  keeps off decode
            10.31     cpu        prefill  A[0..100] n4..5                1.00  overdue: its share
            11.31     cpu        prefill  C[0..132] n4..5 r96..132       0.50  keeps off decode
            11.81     cpu        prefill  C[0..132] n5..6                0.13  keeps off decode
            11.94     cpu        prefill  C[0..132] n6..7 r0..96         0.96  keeps off decode
            12.90     cpu        prefill  C[0..132] n6..7 r96..132       0.50  keeps off decode
            13.40     cpu        prefill  C[132..264] n0..1              0.00  keeps off decode
            13.40     cpu        prefill  C[132..264] n1..2 r0..96       0.96  keeps off decode
            14.36     cpu        prefill  A[0..100] n5..6                0.10  overdue: its share
            14.46     cpu        prefill  A[0..100] n6..7                1.00  overdue: its share
            15.46     cpu        prefill  C[132..264] n1..2 r96..132     0.50  keeps off decode
            15.96     cpu        prefill  C[132..264] n2..3              0.26  keeps off decode
            16.23     cpu        prefill  C[132..264] n3..4 r0..96       0.96  keeps off decode
            17.19     cpu        decode   A[100] n0..3                   0.60  overdue: its share
            17.79     cpu        prefill  C[132..264] n3..4 r96..132     0.50  keeps off decode
            18.29     cpu        prefill  C[132..264] n4..5 r0..96       0.96  keeps off decode
            19.25     cpu        decode   A[100] n3..5                   1.00  overdue: its share
            20.25     cpu        prefill  C[132..264] n4..5 r96..132     0.50  keeps off decode
            20.75     cpu        prefill  C[132..264] n5..6              0.26  keeps off decode
            21.01     cpu        prefill  C[132..264] n6..7 r0..96       0.96  keeps off decode
            21.97     cpu        prefill  C[132..264] n6..7 r96..132     0.50  keeps off decode
            22.47     cpu        decode   A[100] n5..7                   0.60  overdue: its share
            23.07                end      A stop
            23.07     cpu        prefill  C[264..300] n0..3              0.80  keeps off decode
            23.87     cpu        prefill  C[264..300] n3..5              1.00  keeps off decode
            24.87     cpu        prefill  C[264..300] n5..7              0.80  keeps off decode
            25.67                end      C stop
            25.67     cpu        prefill  D[0..132] n0..1                0.00  keeps off decode
            25.67     cpu        prefill  D[0..132] n1..2 r0..96         0.96  keeps off decode
            26.63     cpu        prefill  D[0..132] n1..2 r96..132       0.50  keeps off decode
            27.13     cpu        prefill  D[0..132] n2..3                0.13  keeps off decode
            27.27     cpu        prefill  D[0..132] n3..4 r0..96         0.96  keeps off decode
            28.23     cpu        prefill  D[0..132] n3..4 r96..132       0.50  keeps off decode
            28.73     cpu        prefill  D[0..132] n4..5 r0..96         0.96  keeps off decode
            29.69     cpu        prefill  D[0..132] n4..5 r96..132       0.50  keeps off decode
            30.19     cpu        prefill  D[0..132] n5..6                0.13  keeps off decode
            30.32     cpu        prefill  D[0..132] n6..7 r0..96         0.96  keeps off decode
            31.28     cpu        prefill  D[0..132] n6..7 r96..132       0.50  keeps off decode
            31.78     cpu        prefill  D[132..264] n0..1              0.00  keeps off decode
            31.78     cpu        prefill  D[132..264] n1..2 r0..96       0.96  keeps off decode
            32.74     cpu        prefill  D[132..264] n1..2 r96..132     0.50  keeps off decode
            33.24     cpu        prefill  D[132..264] n2..3              0.26  keeps off decode
            33.50     cpu        prefill  D[132..264] n3..4 r0..96       0.96  keeps off decode
            34.46     cpu        prefill  D[132..264] n3..4 r96..132     0.50  keeps off decode
            34.96     cpu        prefill  D[132..264] n4..5 r0..96       0.96  keeps off decode
            35.92     cpu        prefill  D[132..264] n4..5 r96..132     0.50  keeps off decode
            36.42     cpu        prefill  D[132..264] n5..6              0.26  keeps off decode
            36.69     cpu        prefill  D[132..264] n6..7 r0..96       0.96  keeps off decode
            37.65     cpu        prefill  D[132..264] n6..7 r96..132     0.50  keeps off decode
            38.15     cpu        prefill  D[264..300] n0..3              0.80  keeps off decode
            38.95     cpu        prefill  D[264..300] n3..5              1.00  keeps off decode
            39.95     cpu        prefill  D[264..300] n5..7              0.80  keeps off decode
            40.75                end      D stop
        "#]],
    );
}
