//! A request stops after any kernel, and goes on where it stopped.

use crate::check;
use expect_test::expect;

/// Prefill chunk by chunk, then one row a pass; the last chunk yields the first token.
#[test]
fn a_request_goes_through_its_stages() {
    check(
        "single
         at 0ms  A  reactive  prompt 150  output 3",
        expect![[r#"
            0.00                 arrive   A reactive
            0.00      cpu        prefill  A[0..100]                      4.20  reactive first
            4.20      cpu        prefill  A[100..150]                    2.30  reactive first
            6.50      cpu        decode   A[150]                         2.30  reactive first
            8.80      cpu        decode   A[151]                         2.30  reactive first
            11.11                end      A stop
        "#]],
    );
}

/// The first turn left 103 positions: its prompt of 100 and three tokens, but for the last one.
#[test]
fn a_second_turn_computes_what_its_flow_has_not() {
    check(
        "single
         at 0ms   A  reactive  prompt 100  output 4
         at 20ms  B  reactive  prompt 140  output 1  continues A",
        expect![[r#"
            0.00                 arrive   A reactive
            0.00      cpu        prefill  A[0..100]                      4.20  reactive first
            4.20      cpu        decode   A[100]                         2.20  reactive first
            6.40      cpu        decode   A[101]                         2.20  reactive first
            8.61      cpu        decode   A[102]                         2.21  reactive first
            10.81                end      A stop
            20.00                arrive   B reactive
            20.00                cached   B[0..103] all of A
            20.00     cpu        prefill  B[103..140]                    2.28  reactive first
            22.28                end      B stop
        "#]],
    );
}

/// Two prompts share their beginning only: the first one keeps what it left.
#[test]
fn a_template_is_forked() {
    check(
        "single
         at 0ms   A  proactive  prompt 100  output 1
         at 20ms  B  proactive  prompt 120  output 1  shares 60 of A",
        expect![[r#"
            0.00                 arrive   A proactive
            0.00      cpu        prefill  A[0..100] n0..2                1.00  background
            1.00      cpu        prefill  A[0..100] n2..4                1.10  goes on
            2.10      cpu        prefill  A[0..100] n4..6                1.10  goes on
            3.20      cpu        prefill  A[0..100] n6..7                1.00  goes on
            4.20                 end      A stop
            20.00                arrive   B proactive
            20.00                cached   B[0..60] of A
            20.00     cpu        prefill  B[60..120] n0..3               0.72  background
            20.72     cpu        prefill  B[60..120] n3..7               1.92  goes on
            22.64                end      B stop
        "#]],
    );
}
