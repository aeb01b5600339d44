//! The same two requests under each policy.

use crate::check;
use expect_test::expect;

/// B goes between two kernels of A, with the whole team.
#[test]
fn duet() {
    check(
        "cpu  policy duet
         at 0ms  A  proactive  prompt 150  output 3
         at 3ms  B  reactive   prompt 50   output 2",
        expect![[r#"
            0.00                 arrive   A proactive
            0.00      cpu0+cpu1  prefill  A[0..100] n0..2                1.00  background
            1.00      cpu0+cpu1  prefill  A[0..100] n2..4                1.10  goes on
            2.10      cpu0+cpu1  prefill  A[0..100] n4..6                1.10  goes on
            3.00                 arrive   B reactive
            3.20      cpu0+cpu1  prefill  B[0..50]                       2.10  reactive first
            5.30      cpu0+cpu1  decode   B[50]                          2.10  reactive first
            7.40                 end      B stop
            7.40      cpu0+cpu1  prefill  A[0..100] n6..7                1.00  resumes
            8.40      cpu0+cpu1  prefill  A[100..150] n0..3              0.65  background
            9.05      cpu0+cpu1  prefill  A[100..150] n3..7              1.65  goes on
            10.70     cpu0+cpu1  decode   A[150] n0..6                   1.80  background
            12.50     cpu0+cpu1  decode   A[150] n6..7                   0.50  goes on
            13.00     cpu0+cpu1  decode   A[151] n0..6                   1.80  background
            14.81     cpu0+cpu1  decode   A[151] n6..7                   0.50  goes on
            15.31                end      A stop
        "#]],
    );
}

/// The same, but the lanes part when both stages have work.
#[test]
fn agent_xpu() {
    check(
        "cpu  policy agent-xpu
         at 0ms  A  proactive  prompt 150  output 3
         at 3ms  B  reactive   prompt 50   output 2",
        expect![[r#"
            0.00                 arrive   A proactive
            0.00      cpu0+cpu1  prefill  A[0..132] n0..1                0.00  alone: lanes join
            0.00      cpu0+cpu1  prefill  A[0..132] n1..3                1.45  alone: lanes join
            1.45      cpu0+cpu1  prefill  A[0..132] n3..4                1.32  alone: lanes join
            2.77      cpu0+cpu1  prefill  A[0..132] n4..6                1.45  alone: lanes join
            3.00                 arrive   B reactive
            4.22      cpu0+cpu1  prefill  B[0..50]                       2.10  alone: lanes join
            6.32      cpu0       prefill  A[0..132] n6..7 r0..96         1.92  resumes
            6.32      cpu1       decode   B[50] n0..3                    1.10  reactive first
            7.43      cpu1       decode   B[50] n3..5                    2.00  goes on
            8.24      cpu0       prefill  A[0..132] n6..7 r96..132       1.00  background
            9.43      cpu0       prefill  A[132..150] n0..3              1.30  background
            9.43      cpu1       decode   B[50] n5..7                    1.10  goes on
            10.53                end      B stop
            10.73     cpu0+cpu1  prefill  A[132..150] n3..7              1.65  alone: lanes join
            12.38     cpu0+cpu1  decode   A[150] n0..6                   1.80  fills the gap
            14.18     cpu0+cpu1  decode   A[150] n6..7                   0.50  goes on
            14.68     cpu0+cpu1  decode   A[151] n0..6                   1.80  fills the gap
            16.48     cpu0+cpu1  decode   A[151] n6..7                   0.50  goes on
            16.98                end      A stop
        "#]],
    );
}

/// On the dynamic lane alone, in the order of arrival.
#[test]
fn igpu_batching() {
    check(
        "cpu  policy igpu-batching
         at 0ms  A  proactive  prompt 150  output 3
         at 3ms  B  reactive   prompt 50   output 2",
        expect![[r#"
            0.00                 arrive   A proactive
            0.00      cpu1       prefill  A[0..100]                      8.40  first come
            3.00                 arrive   B reactive
            8.40      cpu1       prefill  A[100..150] B[0..50]           8.80  first come
            17.20     cpu1       decode   A[150] B[50]                   4.81  first come
            22.01                end      B stop
            22.01     cpu1       decode   A[151]                         4.61  first come
            26.62                end      A stop
        "#]],
    );
}

/// On the team, in the order of arrival; iterations run to their end.
#[test]
fn cpu_batching() {
    check(
        "cpu  policy cpu-batching
         at 0ms  A  proactive  prompt 150  output 3
         at 3ms  B  reactive   prompt 50   output 2",
        expect![[r#"
            0.00                 arrive   A proactive
            0.00      cpu0+cpu1  prefill  A[0..100]                      4.20  first come
            3.00                 arrive   B reactive
            4.20      cpu0+cpu1  prefill  A[100..150] B[0..50]           4.40  first come
            8.60      cpu0+cpu1  decode   A[150] B[50]                   2.40  first come
            11.00                end      B stop
            11.00     cpu0+cpu1  decode   A[151]                         2.30  first come
            13.31                end      A stop
        "#]],
    );
}

/// B waits for all of A.
#[test]
fn serial() {
    check(
        "cpu  policy serial
         at 0ms  A  proactive  prompt 150  output 3
         at 3ms  B  reactive   prompt 50   output 2",
        expect![[r#"
            0.00                 arrive   A proactive
            0.00      cpu0+cpu1  prefill  A[0..132]                      5.54  first come
            3.00                 arrive   B reactive
            5.54      cpu0+cpu1  prefill  A[132..150]                    2.30  first come
            7.84      cpu0+cpu1  decode   A[150]                         2.30  goes on
            10.15     cpu0+cpu1  decode   A[151]                         2.30  goes on
            12.45                end      A stop
            12.45     cpu0+cpu1  prefill  B[0..50]                       2.10  first come
            14.55     cpu0+cpu1  decode   B[50]                          2.10  goes on
            16.65                end      B stop
        "#]],
    );
}

/// What A had computed is thrown away.
#[test]
fn restart() {
    check(
        "cpu  policy restart
         at 0ms  A  proactive  prompt 150  output 3
         at 3ms  B  reactive   prompt 50   output 2",
        expect![[r#"
            0.00                 arrive   A proactive
            0.00      cpu0+cpu1  prefill  A[0..132] n0..1                0.00  background
            0.00      cpu0+cpu1  prefill  A[0..132] n1..3                1.45  goes on
            1.45      cpu0+cpu1  prefill  A[0..132] n3..4                1.32  goes on
            2.77      cpu0+cpu1  prefill  A[0..132] n4..6                1.45  goes on
            3.00                 arrive   B reactive
            4.22                 discard  A
            4.22      cpu0+cpu1  prefill  B[0..50]                       2.10  reactive first
            6.32      cpu0+cpu1  decode   B[50]                          2.10  reactive first
            8.43                 end      B stop
            8.43      cpu0+cpu1  prefill  A[0..132] n0..1                0.00  background
            8.43      cpu0+cpu1  prefill  A[0..132] n1..3                1.45  goes on
            9.88      cpu0+cpu1  prefill  A[0..132] n3..4                1.32  goes on
            11.20     cpu0+cpu1  prefill  A[0..132] n4..6                1.45  goes on
            12.65     cpu0+cpu1  prefill  A[0..132] n6..7                1.32  goes on
            13.97     cpu0+cpu1  prefill  A[132..150] n0..3              0.65  background
            14.62     cpu0+cpu1  prefill  A[132..150] n3..7              1.65  goes on
            16.27     cpu0+cpu1  decode   A[150] n0..6                   1.80  background
            18.07     cpu0+cpu1  decode   A[150] n6..7                   0.50  goes on
            18.57     cpu0+cpu1  decode   A[151] n0..6                   1.80  background
            20.38     cpu0+cpu1  decode   A[151] n6..7                   0.50  goes on
            20.88                end      A stop
        "#]],
    );
}

/// In turns, a kernel each.
#[test]
fn timeshare() {
    check(
        "cpu  policy timeshare
         at 0ms  A  proactive  prompt 150  output 3
         at 3ms  B  reactive   prompt 50   output 2",
        expect![[r#"
            0.00                 arrive   A proactive
            0.00      cpu0+cpu1  prefill  A[0..100] n0..3                1.10  its turn
            1.10      cpu0+cpu1  prefill  A[0..100] n3..5                2.00  its turn
            3.00                 arrive   B reactive
            3.10      cpu0+cpu1  prefill  B[0..50] n0..6                 1.60  its turn
            4.70      cpu0+cpu1  prefill  A[0..100] n5..7                1.10  its turn
            5.80      cpu0+cpu1  prefill  B[0..50] n6..7                 0.50  its turn
            6.30      cpu0+cpu1  prefill  A[100..150] n0..6              1.80  its turn
            8.10      cpu0+cpu1  decode   B[50] n0..6                    1.60  its turn
            9.70      cpu0+cpu1  prefill  A[100..150] n6..7              0.50  its turn
            10.20     cpu0+cpu1  decode   B[50] n6..7                    0.50  its turn
            10.70                end      B stop
            10.70     cpu0+cpu1  decode   A[150] n0..6                   1.80  its turn
            12.50     cpu0+cpu1  decode   A[150] n6..7                   0.50  its turn
            13.00     cpu0+cpu1  decode   A[151] n0..6                   1.80  its turn
            14.81     cpu0+cpu1  decode   A[151] n6..7                   0.50  its turn
            15.31                end      A stop
        "#]],
    );
}

/// B goes first at the next iteration.
#[test]
fn priority_only() {
    check(
        "cpu  policy priority-only
         at 0ms  A  proactive  prompt 150  output 3
         at 3ms  B  reactive   prompt 50   output 2",
        expect![[r#"
            0.00                 arrive   A proactive
            0.00      cpu0+cpu1  prefill  A[0..100]                      4.20  first come
            3.00                 arrive   B reactive
            4.20      cpu0+cpu1  prefill  B[0..50] A[100..150]           4.40  reactive first
            8.60      cpu0+cpu1  decode   B[50] A[150]                   2.40  reactive first
            11.00                end      B stop
            11.00     cpu0+cpu1  decode   A[151]                         2.30  first come
            13.31                end      A stop
        "#]],
    );
}
