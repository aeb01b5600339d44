//! The dynamic lane: prefill first, decode fills the gaps.

use crate::check;
use expect_test::expect;

/// The remainder of B and its attention go before decode of A.
#[test]
fn prefill_goes_first_on_the_dynamic_lane() {
    check(
        "npu-igpu  policy agent-xpu  without warm-up
         at 0ms  A  proactive  prompt 100  output 4
         at 5ms  B  proactive  prompt 230  output 1",
        expect![[r#"
            0.00                 arrive   A proactive
            0.00      npu        prefill  A[0..100] n0..2                1.00  chunk
            1.00      igpu       prefill  A[0..100] n2..3                0.10  dynamic shape
            1.10      npu        prefill  A[0..100] n3..4                1.00  chunk
            2.10      npu        prefill  A[0..100] n4..5                1.00  chunk
            3.10      igpu       prefill  A[0..100] n5..6                0.10  dynamic shape
            3.20      npu        prefill  A[0..100] n6..7                1.00  chunk
            4.20      igpu       decode   A[100] n0..6                   1.70  fills the gap
            5.00                 arrive   B proactive
            5.00      npu        prefill  B[0..230] n0..2 r0..100        1.00  chunk
            5.90      igpu       prefill  B[0..230] n0..2 r200..230      0.60  dynamic shape
            6.00      npu        prefill  B[0..230] n0..2 r100..200      1.00  chunk
            6.50      igpu       decode   A[100] n6..7                   0.50  resumes
            7.00      igpu       prefill  B[0..230] n2..3                0.23  dynamic shape
            7.23      npu        prefill  B[0..230] n3..4 r0..100        1.00  chunk
            7.23      igpu       prefill  B[0..230] n3..4 r200..230      0.60  dynamic shape
            7.83      igpu       decode   A[101] n0..6                   1.70  fills the gap
            8.23      npu        prefill  B[0..230] n3..4 r100..200      1.00  chunk
            9.23      npu        prefill  B[0..230] n4..5 r0..100        1.00  chunk
            9.54      igpu       prefill  B[0..230] n4..5 r200..230      0.60  dynamic shape
            10.14     igpu       decode   A[101] n6..7                   0.50  resumes
            10.23     npu        prefill  B[0..230] n4..5 r100..200      1.00  chunk
            10.64     igpu       decode   A[102] n0..6                   1.71  fills the gap
            12.34     igpu       prefill  B[0..230] n5..6                0.23  dynamic shape
            12.57     npu        prefill  B[0..230] n6..7 r0..100        1.00  chunk
            12.57     igpu       prefill  B[0..230] n6..7 r200..230      0.60  dynamic shape
            13.17     igpu       decode   A[102] n6..7                   0.50  resumes
            13.57     npu        prefill  B[0..230] n6..7 r100..200      1.00  chunk
            13.67                end      A stop
            14.57                end      B stop
        "#]],
    );
}

/// Decode goes first, and the NPU waits for attention.
#[test]
fn prefill_goes_first_on_the_dynamic_lane_switched_off() {
    check(
        "npu-igpu  policy agent-xpu  without warm-up  without prefill-first
         at 0ms  A  proactive  prompt 100  output 4
         at 5ms  B  proactive  prompt 230  output 1",
        expect![[r#"
            0.00                 arrive   A proactive
            0.00      npu        prefill  A[0..100] n0..2                1.00  chunk
            1.00      igpu       prefill  A[0..100] n2..3                0.10  dynamic shape
            1.10      npu        prefill  A[0..100] n3..4                1.00  chunk
            2.10      npu        prefill  A[0..100] n4..5                1.00  chunk
            3.10      igpu       prefill  A[0..100] n5..6                0.10  dynamic shape
            3.20      npu        prefill  A[0..100] n6..7                1.00  chunk
            4.20      igpu       decode   A[100] n0..6                   1.70  fills the gap
            5.00                 arrive   B proactive
            5.00      npu        prefill  B[0..230] n0..2 r0..100        1.00  chunk
            5.90      igpu       decode   A[100] n6..7                   0.50  goes on
            6.00      npu        prefill  B[0..230] n0..2 r100..200      1.00  chunk
            6.40      igpu       decode   A[101] n0..6                   1.70  fills the gap
            8.11      igpu       decode   A[101] n6..7                   0.50  goes on
            8.61      igpu       decode   A[102] n0..6                   1.71  fills the gap
            10.31     igpu       decode   A[102] n6..7                   0.50  goes on
            10.81                end      A stop
            10.81     igpu       prefill  B[0..230] n0..2 r200..230      0.60  dynamic shape
            11.41     igpu       prefill  B[0..230] n2..3                0.23  dynamic shape
            11.64     npu        prefill  B[0..230] n3..4 r0..100        1.00  chunk
            11.64     igpu       prefill  B[0..230] n3..4 r200..230      0.60  dynamic shape
            12.64     npu        prefill  B[0..230] n3..4 r100..200      1.00  chunk
            13.64     npu        prefill  B[0..230] n4..5 r0..100        1.00  chunk
            13.64     igpu       prefill  B[0..230] n4..5 r200..230      0.60  dynamic shape
            14.64     npu        prefill  B[0..230] n4..5 r100..200      1.00  chunk
            15.64     igpu       prefill  B[0..230] n5..6                0.23  dynamic shape
            15.87     npu        prefill  B[0..230] n6..7 r0..100        1.00  chunk
            15.87     igpu       prefill  B[0..230] n6..7 r200..230      0.60  dynamic shape
            16.87     npu        prefill  B[0..230] n6..7 r100..200      1.00  chunk
            17.87                end      B stop
        "#]],
    );
}

/// Prompts shorter than a chunk have the dynamic lane all the time; after half of the budget decode goes before them.
#[test]
fn a_stream_is_not_stopped_for_long() {
    check(
        "npu-igpu  stall 8ms  without warm-up
         at 0ms  A  reactive  prompt 20  output 4
         at 4ms  B  reactive  prompt 50  output 1
         at 4ms  C  reactive  prompt 50  output 1
         at 4ms  D  reactive  prompt 50  output 1",
        expect![[r#"
            0.00                 arrive   A reactive
            0.00      igpu       prefill  A[0..20] n0..6                 1.54  dynamic shape
            1.54      igpu       prefill  A[0..20] n6..7                 0.50  dynamic shape
            2.04      igpu       decode   A[20] n0..6                    1.54  reactive first
            3.58      igpu       decode   A[20] n6..7                    0.50  goes on
            4.00                 arrive   B reactive
            4.00                 arrive   C reactive
            4.00                 arrive   D reactive
            4.08      igpu       prefill  B[0..50] n0..3                 1.05  dynamic shape
            5.13      igpu       prefill  B[0..50] n3..5                 2.00  dynamic shape
            7.13      igpu       prefill  B[0..50] n5..7                 1.05  dynamic shape
            8.18                 end      B stop
            8.18      igpu       decode   A[21] n0..6                    1.54  reactive first
            9.73      igpu       decode   A[21] n6..7                    0.50  goes on
            10.23     igpu       prefill  C[0..50] n0..3                 1.05  dynamic shape
            11.28     igpu       prefill  C[0..50] n3..5                 2.00  dynamic shape
            13.28     igpu       prefill  C[0..50] n5..7                 1.05  dynamic shape
            14.33                end      C stop
            14.33     igpu       decode   A[22] n0..6                    1.55  reactive first
            15.87     igpu       decode   A[22] n6..7                    0.50  goes on
            16.37                end      A stop
            16.37     igpu       prefill  D[0..50] n0..3                 1.05  dynamic shape
            17.42     igpu       prefill  D[0..50] n3..5                 2.00  dynamic shape
            19.42     igpu       prefill  D[0..50] n5..7                 1.05  dynamic shape
            20.47                end      D stop
        "#]],
    );
}
