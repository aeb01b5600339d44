//! Prefill and decode are two pipelines: chunks on the static lane, attention and decode on the dynamic one.

use crate::check;
use expect_test::expect;

/// Chunks on the NPU, the remainder and attention on the iGPU.
#[test]
fn a_background_prefill_has_its_affinity() {
    check(
        "npu-igpu  policy agent-xpu  without warm-up
         at 0ms  A  proactive  prompt 230  output 2",
        expect![[r#"
            0.00                 arrive   A proactive
            0.00      npu        prefill  A[0..230] n0..2 r0..100        1.00  chunk
            0.00      igpu       prefill  A[0..230] n0..2 r200..230      0.60  dynamic shape
            1.00      npu        prefill  A[0..230] n0..2 r100..200      1.00  chunk
            2.00      igpu       prefill  A[0..230] n2..3                0.23  dynamic shape
            2.23      npu        prefill  A[0..230] n3..4 r0..100        1.00  chunk
            2.23      igpu       prefill  A[0..230] n3..4 r200..230      0.60  dynamic shape
            3.23      npu        prefill  A[0..230] n3..4 r100..200      1.00  chunk
            4.23      npu        prefill  A[0..230] n4..5 r0..100        1.00  chunk
            4.23      igpu       prefill  A[0..230] n4..5 r200..230      0.60  dynamic shape
            5.23      npu        prefill  A[0..230] n4..5 r100..200      1.00  chunk
            6.23      igpu       prefill  A[0..230] n5..6                0.23  dynamic shape
            6.46      npu        prefill  A[0..230] n6..7 r0..100        1.00  chunk
            6.46      igpu       prefill  A[0..230] n6..7 r200..230      0.60  dynamic shape
            7.46      npu        prefill  A[0..230] n6..7 r100..200      1.00  chunk
            8.46      igpu       decode   A[230] n0..6                   1.96  fills the gap
            10.42     igpu       decode   A[230] n6..7                   0.50  goes on
            10.92                end      A stop
        "#]],
    );
}

/// B is read while A decodes.
#[test]
fn decode_runs_beside_prefill() {
    check(
        "npu-igpu  policy agent-xpu  without warm-up
         at 0ms  A  proactive  prompt 100  output 4
         at 5ms  B  proactive  prompt 200  output 1",
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
            5.00      npu        prefill  B[0..200] n0..2 r0..100        1.00  chunk
            5.90      igpu       decode   A[100] n6..7                   0.50  goes on
            6.00      npu        prefill  B[0..200] n0..2 r100..200      1.00  chunk
            6.40      igpu       decode   A[101] n0..6                   1.70  fills the gap
            8.11      igpu       prefill  B[0..200] n2..3                0.20  dynamic shape
            8.31      npu        prefill  B[0..200] n3..4 r0..100        1.00  chunk
            8.31      igpu       decode   A[101] n6..7                   0.50  resumes
            8.81      igpu       decode   A[102] n0..6                   1.71  fills the gap
            9.31      npu        prefill  B[0..200] n3..4 r100..200      1.00  chunk
            10.31     npu        prefill  B[0..200] n4..5 r0..100        1.00  chunk
            10.51     igpu       decode   A[102] n6..7                   0.50  goes on
            11.01                end      A stop
            11.31     npu        prefill  B[0..200] n4..5 r100..200      1.00  chunk
            12.31     igpu       prefill  B[0..200] n5..6                0.20  dynamic shape
            12.51     npu        prefill  B[0..200] n6..7 r0..100        1.00  chunk
            13.51     npu        prefill  B[0..200] n6..7 r100..200      1.00  chunk
            14.51                end      B stop
        "#]],
    );
}
