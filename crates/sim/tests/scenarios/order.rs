//! The shortest prompt is read first, and long ones are overtaken for a bounded time only.

use crate::check;
use expect_test::expect;

/// B is overtaken by C and D. From 8 ms on it holds its place, and E and F, who are shorter too, are read after it.
#[test]
fn a_long_prompt_is_overtaken_for_a_while() {
    check(
        "npu-igpu  without warm-up  overtaking 7ms
         at 0ms  A  reactive  prompt 100  output 1
         at 1ms  B  reactive  prompt 200  output 1
         at 2ms  C  reactive  prompt 20   output 1
         at 5ms  D  reactive  prompt 20   output 1
         at 7ms  E  reactive  prompt 20   output 1
         at 9ms  F  reactive  prompt 20   output 1",
        expect![[r#"
            0.00                 arrive   A reactive
            0.00      npu        prefill  A[0..100] n0..2                1.00  balanced, 1 chunks on the static lane
            1.00                 arrive   B reactive
            1.00      igpu       prefill  A[0..100] n2..3                0.10  dynamic shape
            1.10      npu        prefill  A[0..100] n3..4                1.00  balanced, 1 chunks on the static lane
            2.00                 arrive   C reactive
            2.10      npu        prefill  A[0..100] n4..5                1.00  balanced, 1 chunks on the static lane
            3.10      igpu       prefill  A[0..100] n5..6                0.10  dynamic shape
            3.20      npu        prefill  A[0..100] n6..7                1.00  balanced, 1 chunks on the static lane
            4.20                 end      A stop
            4.20      igpu       prefill  C[0..20] n0..6                 1.54  dynamic shape
            5.00                 arrive   D reactive
            5.74      igpu       prefill  C[0..20] n6..7                 0.50  dynamic shape
            6.24                 end      C stop
            6.24      igpu       prefill  D[0..20] n0..6                 1.54  dynamic shape
            7.00                 arrive   E reactive
            7.78      igpu       prefill  D[0..20] n6..7                 0.50  dynamic shape
            8.28                 end      D stop
            8.28      npu        prefill  B[0..200] n0..2 r0..100        1.00  balanced, 1 chunks on the static lane
            8.28      igpu       prefill  B[0..200] n0..2 r100..200      2.00  balanced, 1 chunks on the static lane
            9.00                 arrive   F reactive
            10.28     igpu       prefill  B[0..200] n2..3                0.20  dynamic shape
            10.48     npu        prefill  B[0..200] n3..4 r0..100        1.00  balanced, 1 chunks on the static lane
            10.48     igpu       prefill  B[0..200] n3..4 r100..200      2.00  balanced, 1 chunks on the static lane
            12.48     npu        prefill  B[0..200] n4..5 r0..100        1.00  balanced, 1 chunks on the static lane
            12.48     igpu       prefill  B[0..200] n4..5 r100..200      2.00  balanced, 1 chunks on the static lane
            14.48     igpu       prefill  B[0..200] n5..6                0.20  dynamic shape
            14.68     npu        prefill  B[0..200] n6..7 r0..100        1.00  balanced, 1 chunks on the static lane
            14.68     igpu       prefill  B[0..200] n6..7 r100..200      2.00  balanced, 1 chunks on the static lane
            16.68                end      B stop
            16.68     igpu       prefill  E[0..20] n0..6                 1.54  dynamic shape
            18.22     igpu       prefill  E[0..20] n6..7                 0.50  dynamic shape
            18.72                end      E stop
            18.72     igpu       prefill  F[0..20] n0..6                 1.54  dynamic shape
            20.26     igpu       prefill  F[0..20] n6..7                 0.50  dynamic shape
            20.76                end      F stop
        "#]],
    );
}
