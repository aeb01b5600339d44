//! What `duet` does on an NPU and an iGPU that the paper's policy does not.

use crate::check;
use expect_test::expect;

/// Background decode gives way to a reactive prefill, which has both lanes; the paper keeps off any decode.
#[test]
fn a_reactive_prefill_has_both_lanes_while_only_background_decodes() {
    check(
        "npu-igpu  without warm-up
         at 0ms  A  proactive  prompt 100  output 6
         at 6ms  B  reactive   prompt 300  output 2",
        expect![[r#"
            0.00                 arrive   A proactive
            0.00      npu        prefill  A[0..100] n0..2                1.00  chunk
            1.00      igpu       prefill  A[0..100] n2..3                0.10  dynamic shape
            1.10      npu        prefill  A[0..100] n3..4                1.00  chunk
            2.10      npu        prefill  A[0..100] n4..5                1.00  chunk
            3.10      igpu       prefill  A[0..100] n5..6                0.10  dynamic shape
            3.20      npu        prefill  A[0..100] n6..7                1.00  chunk
            4.20      igpu       decode   A[100] n0..6                   1.70  fills the gap
            5.90      igpu       decode   A[100] n6..7                   0.50  goes on
            6.00                 arrive   B reactive
            6.00      npu        prefill  B[0..300] n0..2 r0..100        1.00  balanced, 2 chunks on the static lane
            6.40      igpu       prefill  B[0..300] n0..2 r200..300      2.00  balanced, 2 chunks on the static lane
            7.00      npu        prefill  B[0..300] n0..2 r100..200      1.00  balanced, 2 chunks on the static lane
            8.40      igpu       prefill  B[0..300] n2..3                0.30  dynamic shape
            8.70      npu        prefill  B[0..300] n3..4 r0..100        1.00  balanced, 2 chunks on the static lane
            8.70      igpu       prefill  B[0..300] n3..4 r200..300      2.00  balanced, 2 chunks on the static lane
            9.70      npu        prefill  B[0..300] n3..4 r100..200      1.00  balanced, 2 chunks on the static lane
            10.70     npu        prefill  B[0..300] n4..5 r0..100        1.00  balanced, 2 chunks on the static lane
            10.70     igpu       prefill  B[0..300] n4..5 r200..300      2.00  balanced, 2 chunks on the static lane
            11.70     npu        prefill  B[0..300] n4..5 r100..200      1.00  balanced, 2 chunks on the static lane
            12.70     igpu       prefill  B[0..300] n5..6                0.30  dynamic shape
            13.00     npu        prefill  B[0..300] n6..7 r0..100        1.00  balanced, 2 chunks on the static lane
            13.00     igpu       prefill  B[0..300] n6..7 r200..300      2.00  balanced, 2 chunks on the static lane
            14.00     npu        prefill  B[0..300] n6..7 r100..200      1.00  balanced, 2 chunks on the static lane
            15.00     igpu       decode   B[300] n0..5                   1.80  reactive first
            16.80     igpu       decode   B[300] n5..7                   0.80  goes on
            17.60                end      B stop
            17.60     igpu       decode   A[101] n0..6                   1.70  fills the gap
            19.31     igpu       decode   A[101] n6..7                   0.50  goes on
            19.81     igpu       decode   A[102] n0..6                   1.71  fills the gap
            21.51     igpu       decode   A[102] n6..7                   0.50  goes on
            22.01     igpu       decode   A[103] n0..6                   1.71  fills the gap
            23.72     igpu       decode   A[103] n6..7                   0.50  goes on
            24.22     igpu       decode   A[104] n0..6                   1.71  fills the gap
            25.93     igpu       decode   A[104] n6..7                   0.50  goes on
            26.43                end      A stop
        "#]],
    );
}

/// While R decodes, P waits for its graph instead of taking the iGPU, and then runs wholly on the NPU.
#[test]
fn background_prefill_keeps_off_a_reactive_stream() {
    check(
        "npu-igpu
         at 0ms   R  reactive   prompt 100  output 12
         at 12ms  P  proactive  prompt 150  output 1",
        expect![[r#"
            0.00                 arrive   R reactive
            0.00      npu        prefill  R[0..100] n0..2                1.00  balanced, 1 chunks on the static lane
            1.00      igpu       prefill  R[0..100] n2..3                0.10  dynamic shape
            1.10      npu        prefill  R[0..100] n3..4                1.00  balanced, 1 chunks on the static lane
            2.10      npu        prefill  R[0..100] n4..5                1.00  balanced, 1 chunks on the static lane
            3.10      igpu       prefill  R[0..100] n5..6                0.10  dynamic shape
            3.20      npu        prefill  R[0..100] n6..7                1.00  balanced, 1 chunks on the static lane
            4.20      igpu       decode   R[100] n0..6                   1.70  reactive first
            5.90      igpu       decode   R[100] n6..7                   0.50  goes on
            6.40      igpu       decode   R[101] n0..6                   1.70  reactive first
            8.11      igpu       decode   R[101] n6..7                   0.50  goes on
            8.61      igpu       decode   R[102] n0..6                   1.71  reactive first
            10.31     igpu       decode   R[102] n6..7                   0.50  goes on
            10.81     igpu       decode   R[103] n0..6                   1.71  reactive first
            12.00                arrive   P proactive
            12.00                compile  graph for P[150 rows]
            12.52     igpu       decode   R[103] n6..7                   0.50  goes on
            13.02     igpu       decode   R[104] n0..6                   1.71  reactive first
            14.73     igpu       decode   R[104] n6..7                   0.50  goes on
            15.23     igpu       decode   R[105] n0..6                   1.71  reactive first
            16.94     igpu       decode   R[105] n6..7                   0.50  goes on
            17.00                ready    graph for P
            17.00                wait     until 67.00                          expiry
            17.00     npu        prefill  P[0..150] n0..3                1.80  graph ready
            17.44     igpu       decode   R[106] n0..6                   1.71  reactive first
            18.80     npu        prefill  P[0..150] n3..4                1.50  graph ready
            19.16     igpu       decode   R[106] n6..7                   0.50  goes on
            19.66     igpu       decode   R[107] n0..6                   1.72  reactive first
            20.30     npu        prefill  P[0..150] n4..6                1.80  graph ready
            21.37     igpu       decode   R[107] n6..7                   0.50  goes on
            21.87     igpu       decode   R[108] n0..6                   1.72  reactive first
            22.10     npu        prefill  P[0..150] n6..7                1.50  graph ready
            23.59     igpu       decode   R[108] n6..7                   0.50  goes on
            23.60                reclaim  graph for P
            23.60                end      P stop
            24.09     igpu       decode   R[109] n0..6                   1.72  reactive first
            25.81     igpu       decode   R[109] n6..7                   0.50  goes on
            26.31     igpu       decode   R[110] n0..6                   1.72  reactive first
            28.03     igpu       decode   R[110] n6..7                   0.50  goes on
            28.53                end      R stop
        "#]],
    );
}

/// The paper: P's attention and remainder go first on the iGPU, and R's tokens come later.
#[test]
fn background_prefill_keeps_off_a_reactive_stream_not_in_the_paper() {
    check(
        "npu-igpu  policy agent-xpu
         at 0ms   R  reactive   prompt 100  output 12
         at 12ms  P  proactive  prompt 150  output 1",
        expect![[r#"
            0.00                 arrive   R reactive
            0.00                 compile  graph for R[100 rows]
            0.00      npu        prefill  R[0..100] n0..2                1.00  balanced, 1 chunks on the static lane
            1.00      igpu       prefill  R[0..100] n2..3                0.10  dynamic shape
            1.10      npu        prefill  R[0..100] n3..4                1.00  balanced, 1 chunks on the static lane
            2.10      npu        prefill  R[0..100] n4..5                1.00  balanced, 1 chunks on the static lane
            3.10      igpu       prefill  R[0..100] n5..6                0.10  dynamic shape
            3.20      npu        prefill  R[0..100] n6..7                1.00  balanced, 1 chunks on the static lane
            4.20                 reclaim  graph for R
            4.20      igpu       decode   R[100] n0..6                   1.70  reactive first
            5.90      igpu       decode   R[100] n6..7                   0.50  goes on
            6.40      igpu       decode   R[101] n0..6                   1.70  reactive first
            8.11      igpu       decode   R[101] n6..7                   0.50  goes on
            8.61      igpu       decode   R[102] n0..6                   1.71  reactive first
            10.31     igpu       decode   R[102] n6..7                   0.50  goes on
            10.81     igpu       decode   R[103] n0..6                   1.71  reactive first
            12.00                arrive   P proactive
            12.00                compile  graph for P[150 rows]
            12.00     npu        prefill  P[0..150] n0..2 r0..100        1.00  chunk
            12.52     igpu       prefill  P[0..150] n0..2 r100..150      1.00  dynamic shape
            13.52     igpu       prefill  P[0..150] n2..3                0.15  dynamic shape
            13.67     npu        prefill  P[0..150] n3..4 r0..100        1.00  chunk
            13.67     igpu       prefill  P[0..150] n3..4 r100..150      1.00  dynamic shape
            14.67     npu        prefill  P[0..150] n4..5 r0..100        1.00  chunk
            14.67     igpu       prefill  P[0..150] n4..5 r100..150      1.00  dynamic shape
            15.67     igpu       prefill  P[0..150] n5..6                0.15  dynamic shape
            15.82     npu        prefill  P[0..150] n6..7 r0..100        1.00  chunk
            15.82     igpu       prefill  P[0..150] n6..7 r100..150      1.00  dynamic shape
            16.82                reclaim  graph for P
            16.82                end      P stop
            16.82     igpu       decode   R[103] n6..7                   0.50  resumes
            17.32     igpu       decode   R[104] n0..6                   1.71  reactive first
            19.03     igpu       decode   R[104] n6..7                   0.50  goes on
            19.53     igpu       decode   R[105] n0..6                   1.71  reactive first
            21.24     igpu       decode   R[105] n6..7                   0.50  goes on
            21.74     igpu       decode   R[106] n0..6                   1.71  reactive first
            23.46     igpu       decode   R[106] n6..7                   0.50  goes on
            23.96     igpu       decode   R[107] n0..6                   1.72  reactive first
            25.67     igpu       decode   R[107] n6..7                   0.50  goes on
            26.17     igpu       decode   R[108] n0..6                   1.72  reactive first
            27.89     igpu       decode   R[108] n6..7                   0.50  goes on
            28.39     igpu       decode   R[109] n0..6                   1.72  reactive first
            30.11     igpu       decode   R[109] n6..7                   0.50  goes on
            30.61     igpu       decode   R[110] n0..6                   1.72  reactive first
            32.33     igpu       decode   R[110] n6..7                   0.50  goes on
            32.83                end      R stop
        "#]],
    );
}

/// Decode reads all weights for one row: rows of a prompt that waits for the NPU ride along.
#[test]
fn rows_of_a_prompt_ride_in_decode() {
    check(
        "npu-igpu  stretch 0.5  graphs 1
         at 0ms  R  reactive   prompt 20   output 8
         at 3ms  P  proactive  prompt 400  output 1
         at 3ms  Q  proactive  prompt 40   output 1",
        expect![[r#"
            0.00                 arrive   R reactive
            0.00      igpu       prefill  R[0..20] n0..6                 1.54  dynamic shape
            1.54      igpu       prefill  R[0..20] n6..7                 0.50  dynamic shape
            2.04      igpu       decode   R[20] n0..6                    1.54  reactive first
            3.00                 arrive   P proactive
            3.00                 arrive   Q proactive
            3.00                 compile  graph for P[400 rows]
            3.58      igpu       decode   R[20] n6..7                    0.50  goes on
            4.08      igpu       prefill  R[21] Q[0..7] n0..6            1.56  reactive first, 1 ride nearly free
            5.64      igpu       prefill  R[21] Q[0..7] n6..7            0.50  goes on
            6.14      igpu       prefill  R[22] Q[7..14] n0..6           1.57  reactive first, 1 ride nearly free
            7.71      igpu       prefill  R[22] Q[7..14] n6..7           0.50  goes on
            8.00                 ready    graph for P
            8.00                 wait     until 58.00                          expiry
            8.00      npu        prefill  P[0..400] n0..1                0.00  graph ready
            8.00      npu        prefill  P[0..400] n1..2 r0..100        1.00  graph ready
            8.21      igpu       prefill  R[23] Q[14..21] n0..6          1.59  reactive first, 1 ride nearly free
            9.00      npu        prefill  P[0..400] n1..2 r100..200      1.00  graph ready
            9.80      igpu       prefill  R[23] Q[14..21] n6..7          0.50  goes on
            10.00     npu        prefill  P[0..400] n1..2 r200..300      1.00  graph ready
            10.30     igpu       prefill  R[24] Q[21..28] n0..6          1.61  reactive first, 1 ride nearly free
            11.00     npu        prefill  P[0..400] n1..2 r300..400      1.00  graph ready
            11.91     igpu       prefill  R[24] Q[21..28] n6..7          0.50  goes on
            12.41     npu        prefill  P[0..400] n2..3                0.80  graph ready
            12.41     igpu       prefill  R[25] Q[28..35] n0..6          1.62  reactive first, 1 ride nearly free
            13.21     npu        prefill  P[0..400] n3..4 r0..100        1.00  graph ready
            14.03     igpu       prefill  R[25] Q[28..35] n6..7          0.50  goes on
            14.21     npu        prefill  P[0..400] n3..4 r100..200      1.00  graph ready
            14.53     igpu       prefill  R[26] Q[35..40] n0..6          1.63  reactive first, 1 ride nearly free
            15.21     npu        prefill  P[0..400] n3..4 r200..300      1.00  graph ready
            16.17     igpu       prefill  R[26] Q[35..40] n6..7          0.50  goes on
            16.21     npu        prefill  P[0..400] n3..4 r300..400      1.00  graph ready
            16.67                end      R stop
            16.67                end      Q stop
            17.21     npu        prefill  P[0..400] n4..5 r0..100        1.00  graph ready
            18.21     npu        prefill  P[0..400] n4..5 r100..200      1.00  graph ready
            19.21     npu        prefill  P[0..400] n4..5 r200..300      1.00  graph ready
            20.21     npu        prefill  P[0..400] n4..5 r300..400      1.00  graph ready
            21.21     npu        prefill  P[0..400] n5..6                0.80  graph ready
            22.01     npu        prefill  P[0..400] n6..7 r0..100        1.00  graph ready
            23.01     npu        prefill  P[0..400] n6..7 r100..200      1.00  graph ready
            24.01     npu        prefill  P[0..400] n6..7 r200..300      1.00  graph ready
            25.01     npu        prefill  P[0..400] n6..7 r300..400      1.00  graph ready
            26.01                reclaim  graph for P
            26.01                end      P stop
        "#]],
    );
}

/// The same without: Q waits.
#[test]
fn rows_of_a_prompt_ride_in_decode_switched_off() {
    check(
        "npu-igpu  stretch 0.5  graphs 1  without piggyback
         at 0ms  R  reactive   prompt 20   output 8
         at 3ms  P  proactive  prompt 400  output 1
         at 3ms  Q  proactive  prompt 40   output 1",
        expect![[r#"
            0.00                 arrive   R reactive
            0.00      igpu       prefill  R[0..20] n0..6                 1.54  dynamic shape
            1.54      igpu       prefill  R[0..20] n6..7                 0.50  dynamic shape
            2.04      igpu       decode   R[20] n0..6                    1.54  reactive first
            3.00                 arrive   P proactive
            3.00                 arrive   Q proactive
            3.00                 compile  graph for P[400 rows]
            3.00      npu        prefill  P[0..400] n0..2 r0..100        1.00  chunk
            3.58      igpu       decode   R[20] n6..7                    0.50  goes on
            4.00      npu        prefill  P[0..400] n0..2 r100..200      1.00  chunk
            4.08      igpu       decode   R[21] n0..6                    1.54  reactive first
            5.00      npu        prefill  P[0..400] n0..2 r200..300      1.00  chunk
            5.63      igpu       decode   R[21] n6..7                    0.50  goes on
            6.00      npu        prefill  P[0..400] n0..2 r300..400      1.00  chunk
            6.13      igpu       decode   R[22] n0..6                    1.55  reactive first
            7.67      igpu       decode   R[22] n6..7                    0.50  goes on
            8.00                 ready    graph for P
            8.17      npu        prefill  P[0..400] n2..3                0.80  graph ready
            8.17      igpu       decode   R[23] n0..6                    1.55  reactive first
            8.97      npu        prefill  P[0..400] n3..4 r0..100        1.00  graph ready
            9.72      igpu       decode   R[23] n6..7                    0.50  goes on
            9.97      npu        prefill  P[0..400] n3..4 r100..200      1.00  graph ready
            10.22     igpu       decode   R[24] n0..6                    1.55  reactive first
            10.97     npu        prefill  P[0..400] n3..4 r200..300      1.00  graph ready
            11.77     igpu       decode   R[24] n6..7                    0.50  goes on
            11.97     npu        prefill  P[0..400] n3..4 r300..400      1.00  graph ready
            12.27     igpu       decode   R[25] n0..6                    1.55  reactive first
            12.97     npu        prefill  P[0..400] n4..5 r0..100        1.00  graph ready
            13.82     igpu       decode   R[25] n6..7                    0.50  goes on
            13.97     npu        prefill  P[0..400] n4..5 r100..200      1.00  graph ready
            14.32     igpu       decode   R[26] n0..6                    1.55  reactive first
            14.97     npu        prefill  P[0..400] n4..5 r200..300      1.00  graph ready
            15.88     igpu       decode   R[26] n6..7                    0.50  goes on
            15.97     npu        prefill  P[0..400] n4..5 r300..400      1.00  graph ready
            16.38                end      R stop
            16.97     npu        prefill  P[0..400] n5..6                0.80  graph ready
            17.77     npu        prefill  P[0..400] n6..7 r0..100        1.00  graph ready
            18.77     npu        prefill  P[0..400] n6..7 r100..200      1.00  graph ready
            19.77     npu        prefill  P[0..400] n6..7 r200..300      1.00  graph ready
            20.77     npu        prefill  P[0..400] n6..7 r300..400      1.00  graph ready
            21.77                reclaim  graph for P
            21.77                end      P stop
            21.77     igpu       prefill  Q[0..40] n0..4                 1.64  dynamic shape
            23.41     igpu       prefill  Q[0..40] n4..7                 1.64  dynamic shape
            25.05                end      Q stop
        "#]],
    );
}

/// The shortest prompt that waits is read first.
#[test]
fn the_shortest_prompt_is_read_first() {
    check(
        "npu-igpu  without warm-up,piggyback
         at 0ms  A  proactive  prompt 300  output 1
         at 1ms  B  proactive  prompt 400  output 1
         at 2ms  C  proactive  prompt 100  output 1
         at 3ms  D  proactive  prompt 200  output 1",
        expect![[r#"
            0.00                 arrive   A proactive
            0.00      npu        prefill  A[0..300] n0..2 r0..100        1.00  chunk
            1.00                 arrive   B proactive
            1.00      npu        prefill  A[0..300] n0..2 r100..200      1.00  balanced, 3 chunks on the static lane
            2.00                 arrive   C proactive
            2.00      npu        prefill  A[0..300] n0..2 r200..300      1.00  balanced, 3 chunks on the static lane
            3.00                 arrive   D proactive
            3.00      igpu       prefill  A[0..300] n2..3                0.30  dynamic shape
            3.30      npu        prefill  A[0..300] n3..4 r0..100        1.00  balanced, 2 chunks on the static lane
            3.30      igpu       prefill  A[0..300] n3..4 r200..300      2.00  balanced, 2 chunks on the static lane
            4.30      npu        prefill  A[0..300] n3..4 r100..200      1.00  balanced, 2 chunks on the static lane
            5.30      npu        prefill  A[0..300] n4..5 r0..100        1.00  balanced, 2 chunks on the static lane
            5.30      igpu       prefill  A[0..300] n4..5 r200..300      2.00  balanced, 2 chunks on the static lane
            6.30      npu        prefill  A[0..300] n4..5 r100..200      1.00  balanced, 2 chunks on the static lane
            7.30      igpu       prefill  A[0..300] n5..6                0.30  dynamic shape
            7.60      npu        prefill  A[0..300] n6..7 r0..100        1.00  balanced, 2 chunks on the static lane
            7.60      igpu       prefill  A[0..300] n6..7 r200..300      2.00  balanced, 2 chunks on the static lane
            8.60      npu        prefill  A[0..300] n6..7 r100..200      1.00  balanced, 2 chunks on the static lane
            9.60                 end      A stop
            9.60      npu        prefill  C[0..100] n0..2                1.00  balanced, 1 chunks on the static lane
            10.60     igpu       prefill  C[0..100] n2..3                0.10  dynamic shape
            10.70     npu        prefill  C[0..100] n3..4                1.00  balanced, 1 chunks on the static lane
            11.70     npu        prefill  C[0..100] n4..5                1.00  balanced, 1 chunks on the static lane
            12.70     igpu       prefill  C[0..100] n5..6                0.10  dynamic shape
            12.80     npu        prefill  C[0..100] n6..7                1.00  balanced, 1 chunks on the static lane
            13.80                end      C stop
            13.80     npu        prefill  D[0..200] n0..2 r0..100        1.00  balanced, 1 chunks on the static lane
            13.80     igpu       prefill  D[0..200] n0..2 r100..200      2.00  balanced, 1 chunks on the static lane
            15.80     igpu       prefill  D[0..200] n2..3                0.20  dynamic shape
            16.00     npu        prefill  D[0..200] n3..4 r0..100        1.00  balanced, 1 chunks on the static lane
            16.00     igpu       prefill  D[0..200] n3..4 r100..200      2.00  balanced, 1 chunks on the static lane
            18.00     npu        prefill  D[0..200] n4..5 r0..100        1.00  balanced, 1 chunks on the static lane
            18.00     igpu       prefill  D[0..200] n4..5 r100..200      2.00  balanced, 1 chunks on the static lane
            20.00     igpu       prefill  D[0..200] n5..6                0.20  dynamic shape
            20.20     npu        prefill  D[0..200] n6..7 r0..100        1.00  balanced, 1 chunks on the static lane
            20.20     igpu       prefill  D[0..200] n6..7 r100..200      2.00  balanced, 1 chunks on the static lane
            22.20                end      D stop
            22.20     npu        prefill  B[0..400] n0..2 r0..100        1.00  chunk
            23.20     npu        prefill  B[0..400] n0..2 r100..200      1.00  chunk
            24.20     npu        prefill  B[0..400] n0..2 r200..300      1.00  chunk
            25.20     npu        prefill  B[0..400] n0..2 r300..400      1.00  chunk
            26.20     igpu       prefill  B[0..400] n2..3                0.40  dynamic shape
            26.60     npu        prefill  B[0..400] n3..4 r0..100        1.00  chunk
            27.60     npu        prefill  B[0..400] n3..4 r100..200      1.00  chunk
            28.60     npu        prefill  B[0..400] n3..4 r200..300      1.00  chunk
            29.60     npu        prefill  B[0..400] n3..4 r300..400      1.00  chunk
            30.60     npu        prefill  B[0..400] n4..5 r0..100        1.00  chunk
            31.60     npu        prefill  B[0..400] n4..5 r100..200      1.00  chunk
            32.60     npu        prefill  B[0..400] n4..5 r200..300      1.00  chunk
            33.60     npu        prefill  B[0..400] n4..5 r300..400      1.00  chunk
            34.60     igpu       prefill  B[0..400] n5..6                0.40  dynamic shape
            35.00     npu        prefill  B[0..400] n6..7 r0..100        1.00  chunk
            36.00     npu        prefill  B[0..400] n6..7 r100..200      1.00  chunk
            37.00     npu        prefill  B[0..400] n6..7 r200..300      1.00  chunk
            38.00     npu        prefill  B[0..400] n6..7 r300..400      1.00  chunk
            39.00                end      B stop
        "#]],
    );
}

/// A text for the encoder needs a core, and a prompt has the device meanwhile: neither waits for the other, whichever comes first.
#[test]
fn a_text_for_the_encoder_is_read_beside_a_prompt() {
    check(
        "discrete-gpu  policy duet  without teams
         at 0ms   A  reactive  prompt 200  output 1  encodes
         at 1ms   B  reactive  prompt 200  output 1
         at 40ms  C  reactive  prompt 400  output 1
         at 41ms  D  reactive  prompt 100  output 1  encodes",
        expect![[r#"
            0.00                 arrive   A reactive
            0.00      cpu        prefill  A[0..200] n0..1                0.00  reactive first
            0.00      cpu        prefill  A[0..200] n1..2 r0..96         1.92  reactive first
            1.00                 arrive   B reactive
            1.00      gpu        prefill  B[0..132] n0..3                1.45  keeps off decode
            1.92      cpu        prefill  A[0..200] n1..2 r96..192       1.92  reactive first
            2.45      gpu        prefill  B[0..132] n3..4                1.32  keeps off decode
            3.77      gpu        prefill  B[0..132] n4..6                1.45  keeps off decode
            3.84      cpu        prefill  A[0..200] n1..2 r192..200      1.00  reactive first
            4.84      cpu        prefill  A[0..200] n2..3                0.40  reactive first
            5.22      gpu        prefill  B[0..132] n6..7                1.32  keeps off decode
            5.24      cpu        prefill  A[0..200] n3..4 r0..96         1.92  reactive first
            6.54      gpu        prefill  B[132..200] n0..4              1.56  keeps off decode
            7.16      cpu        prefill  A[0..200] n3..4 r96..192       1.92  reactive first
            8.10      gpu        prefill  B[132..200] n4..7              1.56  keeps off decode
            9.08      cpu        prefill  A[0..200] n3..4 r192..200      1.00  reactive first
            9.66                 end      B stop
            10.08                end      A stop
            40.00                arrive   C reactive
            40.00     gpu        prefill  C[0..132] n0..3                1.45  keeps off decode
            41.00                arrive   D reactive
            41.00     cpu        prefill  D[0..100] n0..2                2.00  reactive first
            41.45     gpu        prefill  C[0..132] n3..4                1.32  keeps off decode
            42.77     gpu        prefill  C[0..132] n4..6                1.45  keeps off decode
            43.00     cpu        prefill  D[0..100] n2..3                0.20  reactive first
            43.20     cpu        prefill  D[0..100] n3..4                2.00  reactive first
            44.22     gpu        prefill  C[0..132] n6..7                1.32  keeps off decode
            45.20                end      D stop
            45.54     gpu        prefill  C[132..264] n0..3              1.58  keeps off decode
            47.13     gpu        prefill  C[132..264] n3..4              1.32  keeps off decode
            48.45     gpu        prefill  C[132..264] n4..6              1.58  keeps off decode
            50.03     gpu        prefill  C[132..264] n6..7              1.32  keeps off decode
            51.35                drop     copy of B on gpu
            51.35     gpu        prefill  C[264..396] n0..3              1.72  keeps off decode
            53.07     gpu        prefill  C[264..396] n3..4              1.32  keeps off decode
            54.39     gpu        prefill  C[264..396] n4..6              1.72  keeps off decode
            56.10     gpu        prefill  C[264..396] n6..7              1.32  keeps off decode
            57.42     gpu        prefill  C[396..400] n0..5              1.90  keeps off decode
            59.32     gpu        prefill  C[396..400] n5..7              0.90  keeps off decode
            60.22                end      C stop
        "#]],
    );
}
