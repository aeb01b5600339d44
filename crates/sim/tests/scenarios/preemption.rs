//! A reactive request goes between two kernels of a background pass, and nothing is copied or computed again.

use crate::check;
use expect_test::expect;

/// B waits for one kernel; A resumes at the node where it stopped.
#[test]
fn a_background_pass_goes_on_where_it_stopped() {
    check(
        "cpu  preempt 4ms
         at 0ms  A  proactive  prompt 100  output 2
         at 2ms  B  reactive   prompt 20   output 2",
        expect![[r#"
            0.00                 arrive   A proactive
            0.00      cpu0+cpu1  prefill  A[0..100] n0..2                1.00  background
            1.00      cpu0+cpu1  prefill  A[0..100] n2..4                1.10  goes on
            2.00                 arrive   B reactive
            2.10      cpu0+cpu1  prefill  B[0..20]                       2.04  reactive first
            4.14      cpu0+cpu1  decode   B[20]                          2.04  reactive first
            6.18                 end      B stop
            6.18      cpu0+cpu1  prefill  A[0..100] n4..6                1.10  resumes
            7.28      cpu0+cpu1  prefill  A[0..100] n6..7                1.00  goes on
            8.28      cpu0+cpu1  decode   A[100] n0..6                   1.70  background
            9.98      cpu0+cpu1  decode   A[100] n6..7                   0.50  goes on
            10.48                end      A stop
        "#]],
    );
}

/// B waits for the whole pass.
#[test]
fn a_background_pass_goes_on_where_it_stopped_switched_off() {
    check(
        "cpu  preempt 4ms  without preemption
         at 0ms  A  proactive  prompt 100  output 2
         at 2ms  B  reactive   prompt 20   output 2",
        expect![[r#"
            0.00                 arrive   A proactive
            0.00      cpu0+cpu1  prefill  A[0..100]                      4.20  background
            2.00                 arrive   B reactive
            4.20      cpu0+cpu1  prefill  B[0..20]                       2.04  reactive first
            6.24      cpu0+cpu1  decode   B[20]                          2.04  reactive first
            8.28                 end      B stop
            8.28      cpu0+cpu1  decode   A[100]                         2.20  background
            10.48                end      A stop
        "#]],
    );
}

/// The same on the static lane: B waits for one chunk.
#[test]
fn between_chunks_on_an_npu() {
    check(
        "npu-igpu  policy agent-xpu  without warm-up
         at 0ms    A  proactive  prompt 300  output 1
         at 0.5ms  B  reactive   prompt 100  output 1",
        expect![[r#"
            0.00                 arrive   A proactive
            0.00      npu        prefill  A[0..300] n0..2 r0..100        1.00  chunk
            0.50                 arrive   B reactive
            1.00      npu        prefill  B[0..100] n0..2                1.00  balanced, 1 chunks on the static lane
            2.00      igpu       prefill  B[0..100] n2..3                0.10  dynamic shape
            2.10      npu        prefill  B[0..100] n3..4                1.00  balanced, 1 chunks on the static lane
            3.10      npu        prefill  B[0..100] n4..5                1.00  balanced, 1 chunks on the static lane
            4.10      igpu       prefill  B[0..100] n5..6                0.10  dynamic shape
            4.20      npu        prefill  B[0..100] n6..7                1.00  balanced, 1 chunks on the static lane
            5.20                 end      B stop
            5.20      npu        prefill  A[0..300] n0..2 r100..200      1.00  chunk
            6.20      npu        prefill  A[0..300] n0..2 r200..300      1.00  chunk
            7.20      igpu       prefill  A[0..300] n2..3                0.30  dynamic shape
            7.50      npu        prefill  A[0..300] n3..4 r0..100        1.00  chunk
            8.50      npu        prefill  A[0..300] n3..4 r100..200      1.00  chunk
            9.50      npu        prefill  A[0..300] n3..4 r200..300      1.00  chunk
            10.50     npu        prefill  A[0..300] n4..5 r0..100        1.00  chunk
            11.50     npu        prefill  A[0..300] n4..5 r100..200      1.00  chunk
            12.50     npu        prefill  A[0..300] n4..5 r200..300      1.00  chunk
            13.50     igpu       prefill  A[0..300] n5..6                0.30  dynamic shape
            13.80     npu        prefill  A[0..300] n6..7 r0..100        1.00  chunk
            14.80     npu        prefill  A[0..300] n6..7 r100..200      1.00  chunk
            15.80     npu        prefill  A[0..300] n6..7 r200..300      1.00  chunk
            16.80                end      A stop
        "#]],
    );
}

/// All rows of A go through the head, which comes at once with the last node: they are read few at a time, so that B's wait
/// stays bounded.
#[test]
fn a_prompt_that_is_scored_in_the_background_is_read_a_few_rows_at_a_time() {
    check(
        "cpu  preempt 4ms
         at 0ms  A  proactive  prompt 80   output 1  scored
         at 2ms  B  reactive   prompt 100  output 1  scored",
        expect![[r#"
            0.00                 arrive   A proactive
            0.00      cpu0+cpu1  prefill  A[0..32] n0..3                 0.53  background
            0.53      cpu0+cpu1  prefill  A[0..32] n3..7                 1.53  goes on
            2.00                 arrive   B reactive
            2.06      cpu0+cpu1  prefill  B[0..100]                      4.20  reactive first
            6.26                 end      B stop
            6.26      cpu0+cpu1  prefill  A[32..64] n0..3                0.56  background
            6.83      cpu0+cpu1  prefill  A[32..64] n3..7                1.56  goes on
            8.39      cpu0+cpu1  prefill  A[64..80] n0..3                0.58  background
            8.97      cpu0+cpu1  prefill  A[64..80] n3..7                1.58  goes on
            10.55                end      A stop
        "#]],
    );
}
