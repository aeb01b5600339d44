//! A request stands in one queue, in the order of its arrival.

use crate::check;
use expect_test::expect;

/// Each class in the order of arrival.
#[test]
fn reactive_requests_go_first_and_keep_their_order() {
    check(
        "cpu
         at 0ms  A  proactive  prompt 20  output 1
         at 0ms  B  proactive  prompt 20  output 1
         at 1ms  C  reactive   prompt 20  output 1
         at 1ms  D  reactive   prompt 20  output 1",
        expect![[r#"
            0.00                 arrive   A proactive
            0.00                 arrive   B proactive
            0.00      cpu0+cpu1  prefill  A[0..20] n0..3                 0.52  background
            0.52      cpu0+cpu1  prefill  A[0..20] n3..7                 1.52  goes on
            1.00                 arrive   C reactive
            1.00                 arrive   D reactive
            2.04                 end      A stop
            2.04      cpu0+cpu1  prefill  C[0..20]                       2.04  reactive first
            4.08                 end      C stop
            4.08      cpu0+cpu1  prefill  D[0..20]                       2.04  reactive first
            6.12                 end      D stop
            6.12      cpu0+cpu1  prefill  B[0..20] n0..3                 0.52  background
            6.64      cpu0+cpu1  prefill  B[0..20] n3..7                 1.52  goes on
            8.16                 end      B stop
        "#]],
    );
}
