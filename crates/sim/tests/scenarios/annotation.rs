//! Predicted times are those that the world takes, and follow it when it drifts.

use crate::check;
use expect_test::expect;

/// Below 50 rows a node takes 0.5 ms on the team, above it 10 us a row; attention adds 1 us a position.
#[test]
fn memory_decides_for_few_rows_and_arithmetic_for_many() {
    check(
        "cpu
         at 0ms   A  reactive  prompt 25   output 1
         at 10ms  B  reactive  prompt 100  output 1",
        expect![[r#"
            0.00                 arrive   A reactive
            0.00      cpu0+cpu1  prefill  A[0..25]                       2.05  reactive first
            2.05                 end      A stop
            10.00                arrive   B reactive
            10.00     cpu0+cpu1  prefill  B[0..100]                      4.20  reactive first
            14.20                end      B stop
        "#]],
    );
}
