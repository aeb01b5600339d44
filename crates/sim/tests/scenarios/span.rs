//! Kernels are as long as the bound allows; long nodes are cut by rows.

use crate::check;
use expect_test::expect;

/// Half of 4 ms a kernel: the other half is for what annotations do not know.
#[test]
fn a_background_pass_is_cut_in_spans() {
    check(
        "cpu  preempt 4ms
         at 0ms  A  proactive  prompt 100  output 1",
        expect![[r#"
            0.00                 arrive   A proactive
            0.00      cpu0+cpu1  prefill  A[0..100] n0..2                1.00  background
            1.00      cpu0+cpu1  prefill  A[0..100] n2..4                1.10  goes on
            2.10      cpu0+cpu1  prefill  A[0..100] n4..6                1.10  goes on
            3.20      cpu0+cpu1  prefill  A[0..100] n6..7                1.00  goes on
            4.20                 end      A stop
        "#]],
    );
}

/// A node of 1 ms does not fit into half of 1 ms, so its rows are cut, but not so small that they read the weights for nothing.
#[test]
fn a_long_node_is_cut_by_rows() {
    check(
        "cpu  preempt 1ms
         at 0ms  A  proactive  prompt 100  output 1",
        expect![[r#"
            0.00                 arrive   A proactive
            0.00      cpu0+cpu1  prefill  A[0..100] n0..1                0.00  background
            0.00      cpu0+cpu1  prefill  A[0..100] n1..2 r0..48         0.50  goes on
            0.50      cpu0+cpu1  prefill  A[0..100] n1..2 r48..96        0.50  goes on
            1.00      cpu0+cpu1  prefill  A[0..100] n1..2 r96..100       0.50  goes on
            1.50      cpu0+cpu1  prefill  A[0..100] n2..3                0.10  goes on
            1.60      cpu0+cpu1  prefill  A[0..100] n3..4 r0..48         0.50  goes on
            2.10      cpu0+cpu1  prefill  A[0..100] n3..4 r48..96        0.50  goes on
            2.60      cpu0+cpu1  prefill  A[0..100] n3..4 r96..100       0.50  goes on
            3.10      cpu0+cpu1  prefill  A[0..100] n4..5 r0..48         0.50  goes on
            3.60      cpu0+cpu1  prefill  A[0..100] n4..5 r48..96        0.50  goes on
            4.10      cpu0+cpu1  prefill  A[0..100] n4..5 r96..100       0.50  goes on
            4.60      cpu0+cpu1  prefill  A[0..100] n5..6                0.10  goes on
            4.70      cpu0+cpu1  prefill  A[0..100] n6..7 r0..48         0.50  goes on
            5.20      cpu0+cpu1  prefill  A[0..100] n6..7 r48..96        0.50  goes on
            5.70      cpu0+cpu1  prefill  A[0..100] n6..7 r96..100       0.50  goes on
            6.20                 end      A stop
        "#]],
    );
}

/// The last layer's attention and feed-forward compute the one row that the head reads, of a part of a prompt none: there is
/// nothing to cut.
#[test]
fn a_node_that_few_rows_go_through_is_not_cut() {
    check(
        "for-head  preempt 1ms
         at 0ms  A  proactive  prompt 200  output 1",
        expect![[r#"
            0.00                 arrive   A proactive
            0.00      cpu0+cpu1  prefill  A[0..100] n0..1                0.00  background
            0.00      cpu0+cpu1  prefill  A[0..100] n1..2 r0..48         0.50  goes on
            0.50      cpu0+cpu1  prefill  A[0..100] n1..2 r48..96        0.50  goes on
            1.00      cpu0+cpu1  prefill  A[0..100] n1..2 r96..100       0.50  goes on
            1.50      cpu0+cpu1  prefill  A[0..100] n2..3                0.10  goes on
            1.60      cpu0+cpu1  prefill  A[0..100] n3..4 r0..48         0.50  goes on
            2.10      cpu0+cpu1  prefill  A[0..100] n3..4 r48..96        0.50  goes on
            2.60      cpu0+cpu1  prefill  A[0..100] n3..4 r96..100       0.50  goes on
            3.10      cpu0+cpu1  prefill  A[0..100] n4..5 r0..48         0.50  goes on
            3.60      cpu0+cpu1  prefill  A[0..100] n4..5 r48..96        0.50  goes on
            4.10      cpu0+cpu1  prefill  A[0..100] n4..5 r96..100       0.50  goes on
            4.60      cpu0+cpu1  prefill  A[0..100] n5..7                0.00  goes on
            4.60      cpu0+cpu1  prefill  A[100..200] n0..1              0.00  background
            4.60      cpu0+cpu1  prefill  A[100..200] n1..2 r0..48       0.50  goes on
            5.10      cpu0+cpu1  prefill  A[100..200] n1..2 r48..96      0.50  goes on
            5.60      cpu0+cpu1  prefill  A[100..200] n1..2 r96..100     0.50  goes on
            6.10      cpu0+cpu1  prefill  A[100..200] n2..3              0.20  goes on
            6.30      cpu0+cpu1  prefill  A[100..200] n3..4 r0..48       0.50  goes on
            6.80      cpu0+cpu1  prefill  A[100..200] n3..4 r48..96      0.50  goes on
            7.30      cpu0+cpu1  prefill  A[100..200] n3..4 r96..100     0.50  goes on
            7.80      cpu0+cpu1  prefill  A[100..200] n4..5 r0..48       0.50  goes on
            8.30      cpu0+cpu1  prefill  A[100..200] n4..5 r48..96      0.50  goes on
            8.80      cpu0+cpu1  prefill  A[100..200] n4..5 r96..100     0.50  goes on
            9.30      cpu0+cpu1  prefill  A[100..200] n5..6              0.20  goes on
            9.50      cpu0+cpu1  prefill  A[100..200] n6..7              0.50  goes on
            10.00                end      A stop
        "#]],
    );
}

/// A reactive pass is one kernel.
#[test]
fn a_person_waits_for_no_cut() {
    check(
        "cpu  preempt 1ms
         at 0ms  A  reactive  prompt 100  output 1",
        expect![[r#"
            0.00                 arrive   A reactive
            0.00      cpu0+cpu1  prefill  A[0..100]                      4.20  reactive first
            4.20                 end      A stop
        "#]],
    );
}
