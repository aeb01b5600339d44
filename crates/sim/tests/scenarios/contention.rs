//! Memory-bound kernels of different classes do not run side by side.

use crate::check;
use expect_test::expect;

/// The prompt of B is so short that the NPU waits for memory; together both would be half as fast again.
#[test]
fn background_decode_waits_for_a_memory_bound_reactive_prefill() {
    check(
        "npu-igpu  policy agent-xpu  compile 0.1ms  contention 1.5
         at 0ms   A  proactive  prompt 20  output 9
         at 4ms   B  reactive   prompt 30  output 1",
        expect![[r#"
            0.00                 arrive   A proactive
            0.00                 compile  graph for A[20 rows]
            0.00      igpu       prefill  A[0..20] n0..6                 1.54  dynamic shape
            0.10                 ready    graph for A
            1.54      npu        prefill  A[0..20] n6..7                 1.00  graph ready
            2.54                 reclaim  graph for A
            2.54      igpu       decode   A[20] n0..6                    1.54  fills the gap
            4.00                 arrive   B reactive
            4.00                 compile  graph for B[30 rows]
            4.08      igpu       prefill  B[0..30] n0..6                 1.86  dynamic shape
            4.10                 ready    graph for B
            5.94      npu        prefill  B[0..30] n6..7                 1.00  graph ready
            6.94                 reclaim  graph for B
            6.94                 end      B stop
            6.94      igpu       decode   A[20] n6..7                    0.50  resumes
            7.44      igpu       decode   A[21] n0..6                    1.54  fills the gap
            8.99      igpu       decode   A[21] n6..7                    0.50  goes on
            9.49      igpu       decode   A[22] n0..6                    1.55  fills the gap
            11.03     igpu       decode   A[22] n6..7                    0.50  goes on
            11.53     igpu       decode   A[23] n0..6                    1.55  fills the gap
            13.08     igpu       decode   A[23] n6..7                    0.50  goes on
            13.58     igpu       decode   A[24] n0..6                    1.55  fills the gap
            15.13     igpu       decode   A[24] n6..7                    0.50  goes on
            15.63     igpu       decode   A[25] n0..6                    1.55  fills the gap
            17.18     igpu       decode   A[25] n6..7                    0.50  goes on
            17.68     igpu       decode   A[26] n0..6                    1.55  fills the gap
            19.24     igpu       decode   A[26] n6..7                    0.50  goes on
            19.74     igpu       decode   A[27] n0..6                    1.56  fills the gap
            21.29     igpu       decode   A[27] n6..7                    0.50  goes on
            21.79                end      A stop
        "#]],
    );
}

/// They run side by side, and B takes longer.
#[test]
fn background_decode_waits_for_a_memory_bound_reactive_prefill_switched_off() {
    check(
        "npu-igpu  policy agent-xpu  compile 0.1ms  contention 1.5  without contention-deferral
         at 0ms   A  proactive  prompt 20  output 9
         at 4ms   B  reactive   prompt 30  output 1",
        expect![[r#"
            0.00                 arrive   A proactive
            0.00                 compile  graph for A[20 rows]
            0.00      igpu       prefill  A[0..20] n0..6                 1.54  dynamic shape
            0.10                 ready    graph for A
            1.54      npu        prefill  A[0..20] n6..7                 1.00  graph ready
            2.54                 reclaim  graph for A
            2.54      igpu       decode   A[20] n0..6                    1.54  fills the gap
            4.00                 arrive   B reactive
            4.00                 compile  graph for B[30 rows]
            4.08      igpu       prefill  B[0..30] n0..6                 1.86  dynamic shape
            4.10                 ready    graph for B
            5.94      npu        prefill  B[0..30] n6..7                 1.00  graph ready
            5.94      igpu       decode   A[20] n6..7                    0.50  resumes
            6.69      igpu       decode   A[21] n0..6                    1.54  fills the gap
            7.44                 reclaim  graph for B
            7.44                 end      B stop
            8.49      igpu       decode   A[21] n6..7                    0.50  goes on
            8.99      igpu       decode   A[22] n0..6                    1.55  fills the gap
            10.53     igpu       decode   A[22] n6..7                    0.50  goes on
            11.03     igpu       decode   A[23] n0..6                    1.55  fills the gap
            12.58     igpu       decode   A[23] n6..7                    0.50  goes on
            13.08     igpu       decode   A[24] n0..6                    1.55  fills the gap
            14.63     igpu       decode   A[24] n6..7                    0.50  goes on
            15.13     igpu       decode   A[25] n0..6                    1.55  fills the gap
            16.68     igpu       decode   A[25] n6..7                    0.50  goes on
            17.18     igpu       decode   A[26] n0..6                    1.55  fills the gap
            18.74     igpu       decode   A[26] n6..7                    0.50  goes on
            19.24     igpu       decode   A[27] n0..6                    1.56  fills the gap
            20.79     igpu       decode   A[27] n6..7                    0.50  goes on
            21.29                end      A stop
        "#]],
    );
}

/// A's stream would be as quick on the GPU alone, but not beside B, which reads memory as well: B waits, or rides along.
#[test]
fn a_stream_is_not_beside_background_decode() {
    check(
        "discrete-gpu  contention 1.5
         at 0ms   B  proactive  prompt 40  output 9
         at 6ms   A  reactive   prompt 40  output 3",
        expect![[r#"
            0.00                 arrive   B proactive
            0.00      gpu        prefill  B[0..40] n0..3                 0.54  background
            0.54      gpu        prefill  B[0..40] n3..7                 1.54  goes on
            2.08      gpu        decode   B[40] n0..6                    1.58  background
            3.66      gpu        decode   B[40] n6..7                    0.50  goes on
            4.16      gpu        decode   B[41] n0..6                    1.58  background
            5.75      gpu        decode   B[41] n6..7                    0.50  goes on
            6.00                 arrive   A reactive
            6.25      gpu        prefill  A[0..40] B[42]                 2.17  reactive first, 1 ride nearly free
            8.41      gpu        decode   A[40] B[43]                    2.17  reactive first, 1 ride nearly free
            10.58     gpu        decode   A[41] B[44]                    2.17  reactive first, 1 ride nearly free
            12.76                end      A stop
            12.76     gpu        decode   B[45] n0..6                    1.59  background
            14.35     gpu        decode   B[45] n6..7                    0.50  goes on
            14.85     gpu        decode   B[46] n0..6                    1.59  background
            16.44     gpu        decode   B[46] n6..7                    0.50  goes on
            16.94     gpu        decode   B[47] n0..6                    1.60  background
            18.54     gpu        decode   B[47] n6..7                    0.50  goes on
            19.04                end      B stop
        "#]],
    );
}

#[test]
fn a_stream_is_not_beside_background_decode_switched_off() {
    check(
        "discrete-gpu  contention 1.5  without contention-deferral
         at 0ms   B  proactive  prompt 40  output 9
         at 6ms   A  reactive   prompt 40  output 3",
        expect![[r#"
            0.00                 arrive   B proactive
            0.00      gpu        prefill  B[0..40] n0..3                 0.54  background
            0.54      gpu        prefill  B[0..40] n3..7                 1.54  goes on
            2.08      gpu        decode   B[40] n0..6                    1.58  background
            3.66      gpu        decode   B[40] n6..7                    0.50  goes on
            4.16      gpu        decode   B[41] n0..6                    1.58  background
            5.75      gpu        decode   B[41] n6..7                    0.50  goes on
            6.00                 arrive   A reactive
            6.25      gpu        prefill  A[0..40] B[42]                 2.17  reactive first, 1 ride nearly free
            8.41      gpu        decode   A[40]                          2.08  side by side
            8.41      cpu        decode   B[43] n0..3                    1.09  side by side
            10.04     cpu        decode   B[43] n3..5                    2.00  side by side
            11.54     gpu        decode   A[41]                          2.08  side by side
            13.04     cpu        decode   B[43] n5..7                    1.09  side by side
            14.66                end      A stop
            14.67     gpu        decode   B[44] n0..6                    1.60  background
            16.27     gpu        decode   B[44] n6..7                    0.50  goes on
            16.77     gpu        decode   B[45] n0..6                    1.59  background
            18.36     gpu        decode   B[45] n6..7                    0.50  goes on
            18.86     gpu        decode   B[46] n0..6                    1.59  background
            20.46     gpu        decode   B[46] n6..7                    0.50  goes on
            20.96     gpu        decode   B[47] n0..6                    1.60  background
            22.55     gpu        decode   B[47] n6..7                    0.50  goes on
            23.05                end      B stop
        "#]],
    );
}
