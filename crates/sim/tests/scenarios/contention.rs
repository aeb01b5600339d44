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
            0.00      igpu       prefill  A[0..20] n0..2                 0.50  dynamic shape
            0.10                 ready    graph for A
            0.50      npu        prefill  A[0..20] n2..4                 1.04  graph ready
            1.54      npu        prefill  A[0..20] n4..6                 1.04  graph ready
            2.58      npu        prefill  A[0..20] n6..7                 1.00  graph ready
            3.58                 reclaim  graph for A
            3.58      igpu       decode   A[20] n0..6                    1.54  fills the gap
            4.00                 arrive   B reactive
            4.00                 compile  graph for B[30 rows]
            4.10                 ready    graph for B
            4.10                 wait     until 54.10                          expiry
            4.10      npu        prefill  B[0..30] n0..3                 1.06  graph ready
            5.67      npu        prefill  B[0..30] n3..5                 2.00  graph ready
            7.67      npu        prefill  B[0..30] n5..7                 1.06  graph ready
            8.73                 reclaim  graph for B
            8.73                 end      B stop
            8.73      igpu       decode   A[20] n6..7                    0.50  goes on
            9.23      igpu       decode   A[21] n0..6                    1.54  fills the gap
            10.78     igpu       decode   A[21] n6..7                    0.50  goes on
            11.28     igpu       decode   A[22] n0..6                    1.55  fills the gap
            12.82     igpu       decode   A[22] n6..7                    0.50  goes on
            13.32     igpu       decode   A[23] n0..6                    1.55  fills the gap
            14.87     igpu       decode   A[23] n6..7                    0.50  goes on
            15.37     igpu       decode   A[24] n0..6                    1.55  fills the gap
            16.92     igpu       decode   A[24] n6..7                    0.50  goes on
            17.42     igpu       decode   A[25] n0..6                    1.55  fills the gap
            18.97     igpu       decode   A[25] n6..7                    0.50  goes on
            19.47     igpu       decode   A[26] n0..6                    1.55  fills the gap
            21.02     igpu       decode   A[26] n6..7                    0.50  goes on
            21.52     igpu       decode   A[27] n0..6                    1.56  fills the gap
            23.08     igpu       decode   A[27] n6..7                    0.50  goes on
            23.58                end      A stop
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
            0.00      igpu       prefill  A[0..20] n0..2                 0.50  dynamic shape
            0.10                 ready    graph for A
            0.50      npu        prefill  A[0..20] n2..4                 1.04  graph ready
            1.54      npu        prefill  A[0..20] n4..6                 1.04  graph ready
            2.58      npu        prefill  A[0..20] n6..7                 1.00  graph ready
            3.58                 reclaim  graph for A
            3.58      igpu       decode   A[20] n0..6                    1.54  fills the gap
            4.00                 arrive   B reactive
            4.00                 compile  graph for B[30 rows]
            4.10                 ready    graph for B
            4.10                 wait     until 54.10                          expiry
            4.10      npu        prefill  B[0..30] n0..3                 1.06  graph ready
            5.63      igpu       decode   A[20] n6..7                    0.50  goes on
            5.69      npu        prefill  B[0..30] n3..5                 2.00  graph ready
            6.38      igpu       decode   A[21] n0..6                    1.54  fills the gap
            8.69      npu        prefill  B[0..30] n5..7                 1.06  graph ready
            8.70      igpu       decode   A[21] n6..7                    0.50  goes on
            9.45      igpu       decode   A[22] n0..6                    1.55  fills the gap
            10.28                reclaim  graph for B
            10.28                end      B stop
            11.27     igpu       decode   A[22] n6..7                    0.50  goes on
            11.77     igpu       decode   A[23] n0..6                    1.55  fills the gap
            13.32     igpu       decode   A[23] n6..7                    0.50  goes on
            13.82     igpu       decode   A[24] n0..6                    1.55  fills the gap
            15.37     igpu       decode   A[24] n6..7                    0.50  goes on
            15.87     igpu       decode   A[25] n0..6                    1.55  fills the gap
            17.42     igpu       decode   A[25] n6..7                    0.50  goes on
            17.92     igpu       decode   A[26] n0..6                    1.55  fills the gap
            19.48     igpu       decode   A[26] n6..7                    0.50  goes on
            19.98     igpu       decode   A[27] n0..6                    1.56  fills the gap
            21.53     igpu       decode   A[27] n6..7                    0.50  goes on
            22.03                end      A stop
        "#]],
    );
}
