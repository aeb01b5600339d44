//! Lanes join when one stage alone has work.

use crate::check;
use expect_test::expect;

/// Both lanes for all of it.
#[test]
fn lanes_join_for_a_reactive_request() {
    check(
        "cpu
         at 0ms  A  reactive  prompt 100  output 2",
        expect![[r#"
            0.00                 arrive   A reactive
            0.00      cpu0+cpu1  prefill  A[0..100]                      4.20  reactive first
            4.20      cpu0+cpu1  decode   A[100]                         2.20  reactive first
            6.40                 end      A stop
        "#]],
    );
}

/// A lane each for prefill and decode.
#[test]
fn lanes_join_for_a_reactive_request_switched_off() {
    check(
        "cpu  without teams
         at 0ms  A  reactive  prompt 100  output 2",
        expect![[r#"
            0.00                 arrive   A reactive
            0.00      cpu0       prefill  A[0..100] n0..2                2.00  keeps off decode
            2.00      cpu0       prefill  A[0..100] n2..3                0.20  keeps off decode
            2.20      cpu0       prefill  A[0..100] n3..4                2.00  keeps off decode
            4.20      cpu0       prefill  A[0..100] n4..5                2.00  keeps off decode
            6.20      cpu0       prefill  A[0..100] n5..6                0.20  keeps off decode
            6.40      cpu0       prefill  A[0..100] n6..7                2.00  keeps off decode
            8.40      cpu1       decode   A[100] n0..3                   1.20  reactive first
            9.60      cpu1       decode   A[100] n3..5                   2.00  goes on
            11.60     cpu1       decode   A[100] n5..7                   1.20  goes on
            12.80                end      A stop
        "#]],
    );
}

/// agent-xpu: A decodes on its lane while B is read on the other.
#[test]
fn the_paper_splits_when_both_stages_have_work() {
    check(
        "cpu  policy agent-xpu
         at 0ms  A  proactive  prompt 50   output 4
         at 3ms  B  proactive  prompt 100  output 1",
        expect![[r#"
            0.00                 arrive   A proactive
            0.00      cpu0+cpu1  prefill  A[0..50] n0..3                 0.55  alone: lanes join
            0.55      cpu0+cpu1  prefill  A[0..50] n3..7                 1.55  alone: lanes join
            2.10      cpu0+cpu1  decode   A[50] n0..6                    1.60  fills the gap
            3.00                 arrive   B proactive
            3.70      cpu0       prefill  B[0..100] n0..2                2.00  background
            3.70      cpu1       decode   A[50] n6..7                    1.00  resumes
            4.70      cpu1       decode   A[51] n0..3                    1.10  fills the gap
            5.70      cpu0       prefill  B[0..100] n2..3                0.20  background
            5.81      cpu1       decode   A[51] n3..5                    2.00  goes on
            5.90      cpu0       prefill  B[0..100] n3..4                2.00  background
            7.81      cpu1       decode   A[51] n5..7                    1.10  goes on
            7.90      cpu0       prefill  B[0..100] n4..5                2.00  background
            8.91      cpu1       decode   A[52] n0..3                    1.11  fills the gap
            9.90      cpu0       prefill  B[0..100] n5..6                0.20  background
            10.02     cpu1       decode   A[52] n3..5                    2.00  goes on
            10.10     cpu0       prefill  B[0..100] n6..7                2.00  background
            12.02     cpu1       decode   A[52] n5..7                    1.11  goes on
            12.10                end      B stop
            13.12                end      A stop
        "#]],
    );
}

/// What is left has both roles; the kernel that went with the lane is run again.
#[test]
fn a_lost_lane() {
    check(
        "cpu
         at 0ms  A  reactive  prompt 100  output 2
         at 2ms  lane 0 is lost",
        expect![[r#"
            0.00                 arrive   A reactive
            0.00      cpu0+cpu1  prefill  A[0..100]                      4.20  reactive first
            2.00                 lost     cpu0
            2.00      cpu1       prefill  A[0..100]                      8.40  reactive first
            10.40     cpu1       decode   A[100]                         4.40  reactive first
            14.80                end      A stop
        "#]],
    );
}

/// The iGPU has both roles.
#[test]
fn a_lost_npu() {
    check(
        "npu-igpu  policy agent-xpu  without warm-up
         at 0ms     A  reactive  prompt 200  output 2
         at 1.5ms   lane 0 is lost",
        expect![[r#"
            0.00                 arrive   A reactive
            0.00      npu        prefill  A[0..200] n0..2 r0..100        1.00  balanced, 1 chunks on the static lane
            0.00      igpu       prefill  A[0..200] n0..2 r100..200      2.00  balanced, 1 chunks on the static lane
            1.50                 lost     npu
            1.50                 wait     until 1001.50                        probe of a lost lane
            2.00      igpu       prefill  A[0..200] n2..3                0.20  keeps off decode
            2.20      igpu       prefill  A[0..200] n3..4 r0..96         1.92  keeps off decode
            4.12      igpu       prefill  A[0..200] n3..4 r96..192       1.92  keeps off decode
            6.04      igpu       prefill  A[0..200] n3..4 r192..200      0.50  keeps off decode
            6.54      igpu       prefill  A[0..200] n4..5 r0..96         1.92  keeps off decode
            8.46      igpu       prefill  A[0..200] n4..5 r96..192       1.92  keeps off decode
            10.38     igpu       prefill  A[0..200] n4..5 r192..200      0.50  keeps off decode
            10.88     igpu       prefill  A[0..200] n5..6                0.20  keeps off decode
            11.08     igpu       prefill  A[0..200] n6..7 r0..96         1.92  keeps off decode
            13.00     igpu       prefill  A[0..200] n6..7 r96..192       1.92  keeps off decode
            14.92     igpu       prefill  A[0..200] n6..7 r192..200      0.50  keeps off decode
            15.42     igpu       decode   A[200] n0..6                   1.90  reactive first
            17.32     igpu       decode   A[200] n6..7                   0.50  goes on
            17.82                end      A stop
            1001.50              probe    npu
        "#]],
    );
}
