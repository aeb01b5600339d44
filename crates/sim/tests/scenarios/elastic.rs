//! Algorithm 1: a reactive prefill is shared between the lanes.

use crate::check;
use expect_test::expect;

/// Scenario 1: three chunks and 50 rows; two chunks on the NPU take as long as one and the remainder on the iGPU.
#[test]
fn both_lanes_end_together_while_decode_is_idle() {
    check(
        "npu-igpu  without warm-up
         at 0ms  A  reactive  prompt 350  output 1",
        expect![[r#"
            0.00                 arrive   A reactive
            0.00      npu        prefill  A[0..350] n0..2 r0..100        1.00  balanced, 2 chunks on the static lane
            0.00      igpu       prefill  A[0..350] n0..2 r200..300      2.00  balanced, 2 chunks on the static lane
            1.00      npu        prefill  A[0..350] n0..2 r100..200      1.00  balanced, 2 chunks on the static lane
            2.00      igpu       prefill  A[0..350] n0..2 r300..350      1.00  balanced, 2 chunks on the static lane
            3.00      igpu       prefill  A[0..350] n2..3                0.35  dynamic shape
            3.35      npu        prefill  A[0..350] n3..4 r0..100        1.00  balanced, 2 chunks on the static lane
            3.35      igpu       prefill  A[0..350] n3..4 r200..300      2.00  balanced, 2 chunks on the static lane
            4.35      npu        prefill  A[0..350] n3..4 r100..200      1.00  balanced, 2 chunks on the static lane
            5.35      igpu       prefill  A[0..350] n3..4 r300..350      1.00  balanced, 2 chunks on the static lane
            6.35      npu        prefill  A[0..350] n4..5 r0..100        1.00  balanced, 2 chunks on the static lane
            6.35      igpu       prefill  A[0..350] n4..5 r200..300      2.00  balanced, 2 chunks on the static lane
            7.35      npu        prefill  A[0..350] n4..5 r100..200      1.00  balanced, 2 chunks on the static lane
            8.35      igpu       prefill  A[0..350] n4..5 r300..350      1.00  balanced, 2 chunks on the static lane
            9.35      igpu       prefill  A[0..350] n5..6                0.35  dynamic shape
            9.70      npu        prefill  A[0..350] n6..7 r0..100        1.00  balanced, 2 chunks on the static lane
            9.70      igpu       prefill  A[0..350] n6..7 r200..300      2.00  balanced, 2 chunks on the static lane
            10.70     npu        prefill  A[0..350] n6..7 r100..200      1.00  balanced, 2 chunks on the static lane
            11.70     igpu       prefill  A[0..350] n6..7 r300..350      1.00  balanced, 2 chunks on the static lane
            12.70                end      A stop
        "#]],
    );
}

/// All chunks on the NPU.
#[test]
fn both_lanes_end_together_while_decode_is_idle_switched_off() {
    check(
        "npu-igpu  without warm-up  without elastic
         at 0ms  A  reactive  prompt 350  output 1",
        expect![[r#"
            0.00                 arrive   A reactive
            0.00      npu        prefill  A[0..350] n0..2 r0..100        1.00  chunk
            0.00      igpu       prefill  A[0..350] n0..2 r300..350      1.00  dynamic shape
            1.00      npu        prefill  A[0..350] n0..2 r100..200      1.00  chunk
            2.00      npu        prefill  A[0..350] n0..2 r200..300      1.00  chunk
            3.00      igpu       prefill  A[0..350] n2..3                0.35  dynamic shape
            3.35      npu        prefill  A[0..350] n3..4 r0..100        1.00  chunk
            3.35      igpu       prefill  A[0..350] n3..4 r300..350      1.00  dynamic shape
            4.35      npu        prefill  A[0..350] n3..4 r100..200      1.00  chunk
            5.35      npu        prefill  A[0..350] n3..4 r200..300      1.00  chunk
            6.35      npu        prefill  A[0..350] n4..5 r0..100        1.00  chunk
            6.35      igpu       prefill  A[0..350] n4..5 r300..350      1.00  dynamic shape
            7.35      npu        prefill  A[0..350] n4..5 r100..200      1.00  chunk
            8.35      npu        prefill  A[0..350] n4..5 r200..300      1.00  chunk
            9.35      igpu       prefill  A[0..350] n5..6                0.35  dynamic shape
            9.70      npu        prefill  A[0..350] n6..7 r0..100        1.00  chunk
            9.70      igpu       prefill  A[0..350] n6..7 r300..350      1.00  dynamic shape
            10.70     npu        prefill  A[0..350] n6..7 r100..200      1.00  chunk
            11.70     npu        prefill  A[0..350] n6..7 r200..300      1.00  chunk
            12.70                end      A stop
        "#]],
    );
}

/// Scenario 2: the remainder is put off until it ends with the chunks, and decode has the iGPU meanwhile.
#[test]
fn a_remainder_keeps_off_decode() {
    check(
        "npu-igpu  policy agent-xpu  without warm-up
         at 0ms   A  reactive  prompt 20   output 6
         at 5ms   B  reactive  prompt 230  output 1",
        expect![[r#"
            0.00                 arrive   A reactive
            0.00      igpu       prefill  A[0..20] n0..6                 1.54  dynamic shape
            1.54      igpu       prefill  A[0..20] n6..7                 0.50  dynamic shape
            2.04      igpu       decode   A[20] n0..6                    1.54  reactive first
            3.58      igpu       decode   A[20] n6..7                    0.50  goes on
            4.08      igpu       decode   A[21] n0..6                    1.54  reactive first
            5.00                 arrive   B reactive
            5.00      npu        prefill  B[0..230] n0..2 r0..100        1.00  keeps off decode
            5.00                 wait     until 6.40                           deferred remainder
            5.63      igpu       decode   A[21] n6..7                    0.50  goes on
            6.00      npu        prefill  B[0..230] n0..2 r100..200      1.00  keeps off decode
            6.13      igpu       decode   A[22] n0..6                    1.55  reactive first
            7.67      igpu       prefill  B[0..230] n0..2 r200..230      0.60  deferred remainder
            8.27      igpu       prefill  B[0..230] n2..3                0.23  dynamic shape
            8.50      npu        prefill  B[0..230] n3..4 r0..100        1.00  keeps off decode
            8.50                 wait     until 9.90                           deferred remainder
            8.50      igpu       decode   A[22] n6..7                    0.50  resumes
            9.00      igpu       decode   A[23] n0..6                    1.55  reactive first
            9.50      npu        prefill  B[0..230] n3..4 r100..200      1.00  keeps off decode
            10.55     igpu       prefill  B[0..230] n3..4 r200..230      0.60  deferred remainder
            11.15     npu        prefill  B[0..230] n4..5 r0..100        1.00  keeps off decode
            11.15                wait     until 12.55                          deferred remainder
            11.15     igpu       decode   A[23] n6..7                    0.50  resumes
            11.65     igpu       decode   A[24] n0..6                    1.55  reactive first
            12.15     npu        prefill  B[0..230] n4..5 r100..200      1.00  keeps off decode
            13.20     igpu       prefill  B[0..230] n4..5 r200..230      0.60  deferred remainder
            13.80     igpu       prefill  B[0..230] n5..6                0.23  dynamic shape
            14.03     npu        prefill  B[0..230] n6..7 r0..100        1.00  keeps off decode
            14.03                wait     until 15.43                          deferred remainder
            14.03     igpu       decode   A[24] n6..7                    0.50  resumes
            14.53                end      A stop
            15.03     npu        prefill  B[0..230] n6..7 r100..200      1.00  balanced, 2 chunks on the static lane
            15.43     igpu       prefill  B[0..230] n6..7 r200..230      0.60  balanced, 2 chunks on the static lane
            16.03                end      B stop
        "#]],
    );
}

/// The remainder goes at once, and decode waits for it.
#[test]
fn a_remainder_keeps_off_decode_switched_off() {
    check(
        "npu-igpu  policy agent-xpu  without warm-up  without remainder-deferral
         at 0ms   A  reactive  prompt 20   output 6
         at 5ms   B  reactive  prompt 230  output 1",
        expect![[r#"
            0.00                 arrive   A reactive
            0.00      igpu       prefill  A[0..20] n0..6                 1.54  dynamic shape
            1.54      igpu       prefill  A[0..20] n6..7                 0.50  dynamic shape
            2.04      igpu       decode   A[20] n0..6                    1.54  reactive first
            3.58      igpu       decode   A[20] n6..7                    0.50  goes on
            4.08      igpu       decode   A[21] n0..6                    1.54  reactive first
            5.00                 arrive   B reactive
            5.00      npu        prefill  B[0..230] n0..2 r0..100        1.00  chunk
            5.63      igpu       prefill  B[0..230] n0..2 r200..230      0.60  dynamic shape
            6.00      npu        prefill  B[0..230] n0..2 r100..200      1.00  chunk
            6.23      igpu       decode   A[21] n6..7                    0.50  resumes
            6.73      igpu       decode   A[22] n0..6                    1.55  reactive first
            8.27      igpu       prefill  B[0..230] n2..3                0.23  dynamic shape
            8.50      npu        prefill  B[0..230] n3..4 r0..100        1.00  chunk
            8.50      igpu       prefill  B[0..230] n3..4 r200..230      0.60  dynamic shape
            9.10      igpu       decode   A[22] n6..7                    0.50  resumes
            9.50      npu        prefill  B[0..230] n3..4 r100..200      1.00  chunk
            9.60      igpu       decode   A[23] n0..6                    1.55  reactive first
            10.50     npu        prefill  B[0..230] n4..5 r0..100        1.00  chunk
            11.15     igpu       prefill  B[0..230] n4..5 r200..230      0.60  dynamic shape
            11.50     npu        prefill  B[0..230] n4..5 r100..200      1.00  chunk
            11.75     igpu       decode   A[23] n6..7                    0.50  resumes
            12.25     igpu       decode   A[24] n0..6                    1.55  reactive first
            13.80     igpu       prefill  B[0..230] n5..6                0.23  dynamic shape
            14.03     npu        prefill  B[0..230] n6..7 r0..100        1.00  chunk
            14.03     igpu       prefill  B[0..230] n6..7 r200..230      0.60  dynamic shape
            14.63     igpu       decode   A[24] n6..7                    0.50  resumes
            15.03     npu        prefill  B[0..230] n6..7 r100..200      1.00  chunk
            15.13                end      A stop
            16.03                end      B stop
        "#]],
    );
}
