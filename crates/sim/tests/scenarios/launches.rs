//! Experts that are launched in groups: each launch is a node, and nothing waits longer than for one of them.

use crate::check;
use expect_test::expect;

/// B waits for one launch; A goes on with the next one.
#[test]
fn a_person_goes_between_two_launches() {
    check(
        "launching  preempt 1ms
         at 0ms    A  proactive  prompt 100  output 1
         at 4.5ms  B  reactive   prompt 20   output 1",
        expect![[r#"
            0.00                 arrive   A proactive
            0.00      cpu        prefill  A[0..100] n0..1                0.00  background
            0.00      cpu        prefill  A[0..100] n1..2 r0..48         0.50  goes on
            0.50      cpu        prefill  A[0..100] n1..2 r48..96        0.50  goes on
            1.00      cpu        prefill  A[0..100] n1..2 r96..100       0.50  goes on
            1.50      cpu        prefill  A[0..100] n2..3                0.10  goes on
            1.60      cpu        prefill  A[0..100] n3..4                1.00  goes on
            2.60      cpu        prefill  A[0..100] n4..5                1.00  goes on
            3.60      cpu        prefill  A[0..100] n5..6                1.00  goes on
            4.50                 arrive   B reactive
            4.60      cpu        prefill  B[0..20]                       5.04  reactive first
            9.64                 end      B stop
            9.64      cpu        prefill  A[0..100] n6..7                1.00  resumes
            10.64     cpu        prefill  A[0..100] n7..8 r0..48         0.50  goes on
            11.14     cpu        prefill  A[0..100] n7..8 r48..96        0.50  goes on
            11.64     cpu        prefill  A[0..100] n7..8 r96..100       0.50  goes on
            12.14     cpu        prefill  A[0..100] n8..9                0.10  goes on
            12.24     cpu        prefill  A[0..100] n9..10               1.00  goes on
            13.24     cpu        prefill  A[0..100] n10..11              1.00  goes on
            14.24     cpu        prefill  A[0..100] n11..12              1.00  goes on
            15.24     cpu        prefill  A[0..100] n12..13              1.00  goes on
            16.24                end      A stop
        "#]],
    );
}
